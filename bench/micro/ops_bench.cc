// The kernels between matrix products, by instruction set: norms, rope, activation functions, softmax, sums, rounding
// of activations and KV rows. One row of 2048 values in L1, as for one token. Reports values per second without a roof:
// a row only has to be cheap compared with the products around it.
//
//   bench_ops_bench --benchmark_filter='avx512'
#include <benchmark/benchmark.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/activation.h"
#include "kernels/kernel_table.h"

namespace millrace {
namespace {

constexpr int64_t kValues = 2048;
constexpr int64_t kHeadDim = 64;

struct Rows {
  std::vector<float> x, w, y, cos, sin;
  std::vector<uint8_t> stored;
};

Rows make_rows() {
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  Rows rows;
  for (std::vector<float>* v : {&rows.x, &rows.w, &rows.y}) {
    v->resize(kValues);
    for (float& value : *v) value = normal(engine);
  }
  rows.cos.assign(kHeadDim / 2, 0.8f);
  rows.sin.assign(kHeadDim / 2, 0.6f);
  rows.stored.resize(kValues * 8);
  return rows;
}

using Body = std::function<void(const KernelTable&, Rows&)>;

void add_benchmark(const std::string& name, Isa isa, const Body& body) {
  const std::string full = name + "/" + isa_name(isa);
  benchmark::RegisterBenchmark(full.c_str(), [isa, body](benchmark::State& state) {
    const KernelTable table = make_kernel_table(isa);
    Rows rows = make_rows();
    for (auto _ : state) {
      body(table, rows);
      benchmark::ClobberMemory();
    }
    state.counters["values/s"] =
        benchmark::Counter(static_cast<double>(state.iterations() * kValues), benchmark::Counter::kIsRate);
  });
}

void add_row_kernels(Isa isa) {
  add_benchmark("rms_norm", isa, [](const KernelTable& k, Rows& r) {
    k.rms_norm(r.x.data(), r.w.data(), 0, 1e-5f, kValues, r.y.data());
  });
  add_benchmark("layer_norm", isa, [](const KernelTable& k, Rows& r) {
    k.layer_norm(r.x.data(), r.w.data(), r.w.data(), 1e-5f, kValues, r.y.data());
  });
  for (bool half : {true, false}) {
    add_benchmark(half ? "rope_half" : "rope_pairs", isa, [half](const KernelTable& k, Rows& r) {
      for (int64_t head = 0; head < kValues; head += kHeadDim)
        k.rope(r.x.data() + head, r.cos.data(), r.sin.data(), kHeadDim, half);
    });
  }
  add_benchmark("silu_mul", isa,
                [](const KernelTable& k, Rows& r) { k.silu_mul(r.x.data(), r.w.data(), r.y.data(), kValues); });
  add_benchmark("gelu_tanh_mul", isa,
                [](const KernelTable& k, Rows& r) { k.gelu_tanh_mul(r.x.data(), r.w.data(), r.y.data(), kValues); });
  add_benchmark("gelu_erf_mul", isa,
                [](const KernelTable& k, Rows& r) { k.gelu_erf_mul(r.x.data(), r.w.data(), r.y.data(), kValues); });
  add_benchmark("softcap", isa, [](const KernelTable& k, Rows& r) { k.softcap(r.x.data(), 30, kValues); });
  add_benchmark("softmax", isa, [](const KernelTable& k, Rows& r) { k.softmax(r.y.data(), kValues); });
  add_benchmark("add", isa, [](const KernelTable& k, Rows& r) { k.add(r.w.data(), r.y.data(), kValues); });
}

void add_rounding(Isa isa) {
  const std::pair<const char*, Activation> kinds[] = {{"activation_f32", Activation::f32},
                                                      {"activation_bf16", Activation::bf16},
                                                      {"activation_q8", Activation::q8},
                                                      {"activation_q8_shift", Activation::q8_shift}};
  for (const auto& [name, kind] : kinds) {
    add_benchmark(name, isa, [kind = kind](const KernelTable& k, Rows& r) {
      k.encode_activation(kind, r.x.data(), kValues, r.stored.data());
    });
  }
  const KernelTable table = make_kernel_table(isa);
  for (const RowCodec& codec : table.codecs) {
    const std::string name(codec.format->name);
    if (name != "f16" && name != "bf16" && name != "q8_0") continue;  // the KV cache formats
    add_benchmark("encode_" + name, isa,
                  [codec](const KernelTable&, Rows& r) { codec.encode(r.x.data(), r.stored.data(), kValues); });
    add_benchmark("decode_" + name, isa,
                  [codec](const KernelTable&, Rows& r) { codec.decode(r.stored.data(), r.y.data(), kValues); });
  }
}

const bool kRegistered = [] {
  for (Isa isa : isa_levels()) {
    add_row_kernels(isa);
    add_rounding(isa);
  }
  return true;
}();

}  // namespace
}  // namespace millrace
