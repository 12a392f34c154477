// Attention, one thread: decode at depth 4096 (bytes of K and V read a second, from a cache larger than the
// last-level cache) and prefill of 512 tokens at depth 0 and 4096 (floating-point operations a second), for
// every KV format and instruction set. Arguments: instruction set, KV format, query heads per KV head, depth.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "base/cpu.h"
#include "kernels/bandwidth.h"
#include "kernels/kernel_table.h"
#include "tensor/aligned_buffer.h"

namespace millrace {
namespace {

constexpr int64_t kHeadDim = 128;
constexpr int64_t kBlockTokens = 16;
constexpr int64_t kHeads = 24;  // KV heads: 24 x 4096 x 128 x 2 values

// [blocks][K or V][heads][block_tokens] rows, as a pool lays them out.
class Cache {
 public:
  Cache(const KernelTable& table, const Format& format, int64_t slots, int64_t heads)
      : row_bytes_(format.row_bytes(kHeadDim)), heads_(heads), blocks_((slots + kBlockTokens - 1) / kBlockTokens) {
    bytes_ = std::move(AlignedBuffer::allocate(blocks_ * 2 * heads * kBlockTokens * row_bytes_, "the cache").value());
    std::vector<float> row(kHeadDim);
    uint32_t state = 1;
    for (int64_t r = 0; r < blocks_ * 2 * heads * kBlockTokens; ++r) {
      for (float& x : row) {
        state = state * 1664525u + 1013904223u;
        x = static_cast<float>(state >> 8) * 0x1.0p-23f - 1.0f;
      }
      table.find_codec(&format)->encode(row.data(), bytes_.data() + r * row_bytes_, kHeadDim);
    }
  }
  std::vector<const uint8_t*> blocks(int64_t head, bool values) const {
    std::vector<const uint8_t*> out;
    for (int64_t b = 0; b < blocks_; ++b) {
      out.push_back(bytes_.data() + ((b * 2 + values) * heads_ + head) * kBlockTokens * row_bytes_);
    }
    return out;
  }
  int64_t row_bytes() const { return row_bytes_; }

 private:
  int64_t row_bytes_, heads_, blocks_;
  AlignedBuffer bytes_;
};

const char* const kFormats[] = {"f32", "f16", "bf16", "q8_0"};

struct Run {
  Run(benchmark::State& state, int64_t depth, int64_t new_tokens, int64_t heads)
      : table(make_kernel_table(static_cast<Isa>(state.range(0)))),
        kernel(*table.find_attention(find_format(kFormats[state.range(1)]))),
        group(state.range(2)),
        queries(new_tokens),
        cache(table, *kernel.kv_format, depth + new_tokens, heads),
        q(static_cast<size_t>(queries * group * kHeadDim), 0.02f),
        max(static_cast<size_t>(queries * group)),
        sum(max.size()),
        acc(max.size() * kHeadDim) {
    state.SetLabel(std::string(isa_name(table.isa)) + " " + kFormats[state.range(1)] + " group " +
                   std::to_string(group) + " depth " + std::to_string(depth));
    for (int64_t h = 0; h < heads; ++h) {
      k.push_back(cache.blocks(h, false));
      v.push_back(cache.blocks(h, true));
    }
  }

  // All partitions of one head.
  void attend(int64_t head, int64_t first_query) {
    AttentionArgs a;
    a.q = q.data();
    a.q_stride = group * kHeadDim;
    a.queries = queries;
    a.group = group;
    a.head_dim = kHeadDim;
    a.first_query = first_query;
    a.k_blocks = k[static_cast<size_t>(head)].data();
    a.v_blocks = v[static_cast<size_t>(head)].data();
    a.block_tokens = kBlockTokens;
    a.row_bytes = cache.row_bytes();
    a.max = max.data();
    a.sum = sum.data();
    a.acc = acc.data();
    for (int64_t begin = 0; begin < first_query + queries; begin += kAttentionPartition) {
      a.key_begin = begin;
      a.key_end = std::min(begin + kAttentionPartition, first_query + queries);
      kernel.run(a);
    }
    benchmark::DoNotOptimize(acc.data());
    benchmark::ClobberMemory();
  }

  KernelTable table;
  AttentionKernel kernel;
  int64_t group, queries;
  Cache cache;
  std::vector<float> q, max, sum, acc;
  std::vector<std::vector<const uint8_t*>> k, v;
};

void decode(benchmark::State& state) {
  if (static_cast<Isa>(state.range(0)) > detect_isa()) return state.SkipWithError("not on this machine");
  const int64_t depth = state.range(3);
  Run run(state, depth, 1, kHeads);
  int64_t head = 0;
  for (auto _ : state) {
    run.attend(head, depth);
    head = (head + 1) % kHeads;
  }
  state.SetBytesProcessed(state.iterations() * 2 * (depth + 1) * run.cache.row_bytes());
}

void prefill(benchmark::State& state) {
  if (static_cast<Isa>(state.range(0)) > detect_isa()) return state.SkipWithError("not on this machine");
  const int64_t depth = state.range(3);
  Run run(state, depth, 512, 1);
  for (auto _ : state) run.attend(0, depth);
  const double pairs = 512.0 * static_cast<double>(depth) + 512.0 * 513.0 / 2;
  state.counters["GFLOP/s"] = benchmark::Counter(
      pairs * static_cast<double>(run.group) * 4 * kHeadDim * static_cast<double>(state.iterations()) / 1e9,
      benchmark::Counter::kIsRate);
}

// What decode is held against: the same amount of memory, only read.
void read_alone(benchmark::State& state) {
  if (detect_isa() != Isa::avx512) return state.SkipWithError("not on this machine");
  auto buffer = std::move(AlignedBuffer::allocate(int64_t{96} << 20, "the buffer").value());
  for (int64_t i = 0; i < buffer.bytes(); i += 64) buffer.data()[i] = 1;
  const RoofKernels roof = roof_kernels_avx512();
  for (auto _ : state) benchmark::DoNotOptimize(roof.read(buffer.data(), buffer.bytes()));
  state.SetBytesProcessed(state.iterations() * buffer.bytes());
}

BENCHMARK(read_alone)->Unit(benchmark::kMillisecond)->MinTime(0.2);
BENCHMARK(decode)->ArgsProduct({{1, 2}, {0, 1, 2, 3}, {1, 4, 8}, {4096}})->Unit(benchmark::kMicrosecond)->MinTime(0.2);
BENCHMARK(prefill)->ArgsProduct({{1, 2}, {0, 1, 2, 3}, {4}, {0, 4096}})->Unit(benchmark::kMillisecond)->MinTime(0.2);

}  // namespace
}  // namespace millrace
