// Attention on one thread: decode of one token (bytes of K and V read per second; cold: from more heads than fit the
// last-level cache; cached: the same head repeatedly, which shows the compute limit) and prefill of 512 tokens
// (floating-point operations per second), each next to the processor's roof measured in the same run: its read
// bandwidth, and its multiply-adds, in bf16 where the kernel uses them.
//
// Arguments: instruction set, KV format, head size, query heads per KV head, depth, and number of streams whose blocks
// alternate in the pool.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "kernels/bandwidth.h"
#include "kernels/kernel_table.h"
#include "tensor/aligned_buffer.h"

namespace millrace {
namespace {

constexpr int64_t kBlockTokens = 16;
constexpr int64_t kColdBytes = int64_t{128} << 20;
const char* const kFormats[] = {"f32", "f16", "bf16", "q8_0"};

// [K, V][heads][blocks][block_tokens] rows in a pool's layout, filled with a small repeated pattern. The blocks of
// `streams` streams alternate, as after decoding them together; the benchmark uses those of the first stream.
class Cache {
 public:
  Cache(const KernelTable& table, const Format& format, int64_t head_dim, int64_t slots, int64_t heads, int64_t streams)
      : row_bytes_(format.row_bytes(head_dim)),
        heads_(heads),
        streams_(streams),
        blocks_((slots + kBlockTokens - 1) / kBlockTokens) {
    bytes_ = std::move(AlignedBuffer::allocate(2 * heads * streams * blocks_ * block_bytes(), "the cache").value());
    constexpr int64_t kPattern = 1024;
    std::vector<float> values(static_cast<size_t>(kPattern * head_dim));
    uint32_t state = 1;
    for (float& x : values) {
      state = state * 1664525u + 1013904223u;
      x = static_cast<float>(state >> 8) * 0x1.0p-23f - 1.0f;
    }
    std::vector<uint8_t> pattern(static_cast<size_t>(kPattern * row_bytes_));
    for (int64_t r = 0; r < kPattern; ++r) {
      table.find_codec(&format)->encode(values.data() + r * head_dim, pattern.data() + r * row_bytes_, head_dim);
    }
    for (int64_t at = 0; at < bytes_.bytes(); at += static_cast<int64_t>(pattern.size())) {
      std::memcpy(bytes_.data() + at, pattern.data(),
                  static_cast<size_t>(std::min(bytes_.bytes() - at, kPattern * row_bytes_)));
    }
  }
  std::vector<const uint8_t*> blocks(int64_t head, bool values) const {
    std::vector<const uint8_t*> out;
    for (int64_t b = 0; b < blocks_; ++b) {
      out.push_back(bytes_.data() + (((values ? heads_ : 0) + head) * blocks_ + b) * streams_ * block_bytes());
    }
    return out;
  }
  int64_t row_bytes() const { return row_bytes_; }

 private:
  int64_t block_bytes() const { return kBlockTokens * row_bytes_; }

  int64_t row_bytes_, heads_, streams_, blocks_;
  AlignedBuffer bytes_;
};

template <typename Body>
double best_seconds(const Body& body) {
  double best = 1e9;
  for (int i = 0; i < 10; ++i) {
    const auto start = std::chrono::steady_clock::now();
    body();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

// Measured once per process.
double read_roof() {  // bytes per second
  static const double roof = [] {
    auto buffer = std::move(AlignedBuffer::allocate(kColdBytes, "the buffer").value());
    for (int64_t i = 0; i < buffer.bytes(); i += 64) buffer.data()[i] = 1;
    return static_cast<double>(buffer.bytes()) / best_seconds([&] {
             benchmark::DoNotOptimize(roof_kernels(detect_isa()).read(buffer.data(), buffer.bytes()));
           });
  }();
  return roof;
}

Isa isa_of(const benchmark::State& state) { return state.range(0) == 1 ? Isa::avx2 : detect_isa(); }

double multiply_roof(Isa isa, bool bf16) {  // floating-point operations per second
  static std::map<uint32_t, double> roofs;
  double& roof = roofs[isa.bits()];
  if (roof == 0) {
    constexpr int64_t kRounds = 1 << 16;
    const RoofKernels kernels = roof_kernels(isa);
    const double seconds = best_seconds([&] { benchmark::DoNotOptimize(kernels.fma(kRounds)); });
    roof = static_cast<double>(kernels.fma_operations) * kRounds / seconds;
  }
  return bf16 ? 2 * roof : roof;
}

struct Run {
  Run(benchmark::State& state, int64_t new_tokens, bool cold)
      : table(make_kernel_table(isa_of(state))),
        kernel(*table.find_attention(find_format(kFormats[state.range(1)]))),
        head_dim(state.range(2)),
        group(state.range(3)),
        depth(state.range(4)),
        queries(new_tokens),
        heads(cold ? kColdBytes / (2 * (depth + new_tokens) * kernel.kv_format->row_bytes(head_dim)) + 1 : 1),
        cache(table, *kernel.kv_format, head_dim, depth + new_tokens, heads, state.range(5)),
        q(static_cast<size_t>(queries * group * head_dim), 0.02f),
        max(static_cast<size_t>(queries * group)),
        sum(max.size()),
        acc(max.size() * static_cast<size_t>(head_dim)) {
    state.SetLabel(isa_name(table.isa) + " " + kFormats[state.range(1)]);
    for (int64_t h = 0; h < heads; ++h) {
      k.push_back(cache.blocks(h, false));
      v.push_back(cache.blocks(h, true));
    }
  }

  // All partitions of one head, for `count` queries from `first` on.
  void attend(int64_t head, int64_t first, int64_t count) {
    AttentionArgs a;
    a.q = q.data();
    a.q_stride = group * head_dim;
    a.queries = count;
    a.group = group;
    a.head_dim = head_dim;
    a.first_query = depth + first;
    a.k_blocks = k[static_cast<size_t>(head)].data();
    a.v_blocks = v[static_cast<size_t>(head)].data();
    a.block_tokens = kBlockTokens;
    a.row_bytes = cache.row_bytes();
    a.max = max.data();
    a.sum = sum.data();
    a.acc = acc.data();
    const int64_t end = a.first_query + count;
    for (int64_t begin = 0; begin < end; begin += kAttentionPartition) {
      a.key_begin = begin;
      a.key_end = std::min(begin + kAttentionPartition, end);
      a.key_ahead = std::min(a.key_end + 128, end);
      a.cold = begin == 0;
      kernel.run(a);
    }
    benchmark::DoNotOptimize(acc.data());
    benchmark::ClobberMemory();
  }

  KernelTable table;
  AttentionKernel kernel;
  int64_t head_dim, group, depth, queries, heads;
  Cache cache;
  std::vector<float> q, max, sum, acc;
  std::vector<std::vector<const uint8_t*>> k, v;
};

void decode_heads(benchmark::State& state, bool cold) {
  if (!detect_isa().includes(isa_of(state))) return state.SkipWithError("not on this machine");
  Run run(state, 1, cold);
  const double roof = read_roof();
  int64_t head = 0;
  for (auto _ : state) {
    run.attend(head, 0, 1);
    head = (head + 1) % run.heads;
  }
  const double bytes = 2.0 * static_cast<double>((run.depth + 1) * run.cache.row_bytes() * state.iterations());
  state.counters["GB/s"] = benchmark::Counter(bytes / 1e9, benchmark::Counter::kIsRate);
  state.counters["of_roof"] = benchmark::Counter(bytes / roof, benchmark::Counter::kIsRate);
}

void decode(benchmark::State& state) { decode_heads(state, true); }
void decode_cached(benchmark::State& state) { decode_heads(state, false); }

void prefill(benchmark::State& state) {
  if (!detect_isa().includes(isa_of(state))) return state.SkipWithError("not on this machine");
  constexpr int64_t kTokens = 512;
  Run run(state, kTokens, false);
  const double roof = multiply_roof(run.table.isa, run.kernel.bf16_head_dim >= run.head_dim);
  const int64_t tile = std::max<int64_t>(1, 256 / run.group);  // as attend() splits a prompt
  for (auto _ : state) {
    for (int64_t first = 0; first < kTokens; first += tile) run.attend(0, first, std::min(tile, kTokens - first));
  }
  const double pairs = kTokens * static_cast<double>(run.depth) + kTokens * (kTokens + 1) / 2.0;
  const double operations = pairs * static_cast<double>(run.group * 4 * run.head_dim * state.iterations());
  state.counters["GFLOP/s"] = benchmark::Counter(operations / 1e9, benchmark::Counter::kIsRate);
  state.counters["of_roof"] = benchmark::Counter(operations / roof, benchmark::Counter::kIsRate);
}

const std::vector<std::string> kArguments = {"isa", "kv", "dim", "group", "depth", "streams"};

BENCHMARK(decode)
    ->ArgNames(kArguments)
    ->ArgsProduct({{1, 2}, {0, 1, 2, 3}, {64, 128}, {1, 4, 8}, {512, 4096, 16384}, {1, 4}})
    ->Unit(benchmark::kMicrosecond)
    ->MinTime(0.1);
BENCHMARK(decode_cached)
    ->ArgNames(kArguments)
    ->ArgsProduct({{1, 2}, {0, 1, 2, 3}, {64, 128}, {1, 4, 8}, {512}, {1}})
    ->Unit(benchmark::kMicrosecond)
    ->MinTime(0.1);
BENCHMARK(prefill)
    ->ArgNames(kArguments)
    ->ArgsProduct({{1, 2}, {0, 1, 2, 3}, {64, 128}, {1, 4, 8}, {0, 512, 4096, 16384}, {1}})
    ->Unit(benchmark::kMillisecond)
    ->MinTime(0.1);

}  // namespace
}  // namespace millrace
