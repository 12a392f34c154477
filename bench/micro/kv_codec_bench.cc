// What a KV codec costs where rows are stored: keys of a block that is full, from rows of f16, and values token by
// token. Nanoseconds a value, one thread. MILLRACE_ISA chooses the kernels.
//
// Arguments: format, head size.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "formats/format.h"
#include "kernels/kernel_table.h"
#include "kv/codec.h"
#include "tensor/half.h"

namespace millrace {
namespace {

const char* const kFormats[] = {"kivi:bits=2", "kivi:bits=4", "kvquant:bits=2", "kvquant",          "kvquant:bits=4",
                                "flexgen_kv",  "atom_kv",     "quarot_kv",      "quarot_kv:bits=3", "turboquant"};
constexpr int64_t kLastFormat = std::size(kFormats) - 1;
constexpr int64_t kBytes = int64_t{1} << 24;  // of rows that take turns: in the last-level cache, as behind a step

void store(benchmark::State& state, KvPart part) {
  const std::string name = kFormats[state.range(0)];
  state.SetLabel(name);
  const auto codec = find_kv_codec(name).value();
  const KernelTable table = make_kernel_table(select_isa().value());
  const RowCodec* const f16 = table.find_codec(find_format("f16"));
  const int64_t dim = state.range(1), tokens = std::max<int64_t>(32, codec->block_multiple()), count = tokens * dim;
  const int64_t blocks = kBytes / (2 * count);
  std::vector<uint8_t> halves(static_cast<size_t>(2 * blocks * count));
  uint32_t random = 1;
  for (int64_t i = 0; i < blocks * count; ++i) {
    random = random * 1664525u + 1013904223u;
    const uint16_t half = f32_to_f16(static_cast<float>(random >> 8) * 0x1.0p-23f - 1.0f);
    std::memcpy(halves.data() + 2 * i, &half, 2);
  }
  std::vector<float> rows(static_cast<size_t>(count));
  const int64_t bytes = codec->tile_bytes(tokens, dim);
  std::vector<uint8_t> tiles(static_cast<size_t>(blocks * bytes));
  int64_t block = 0;
  for (auto _ : state) {
    if (block + 1 < blocks) {
      for (int64_t at = 0; at < 2 * count; at += 64) __builtin_prefetch(halves.data() + 2 * (block + 1) * count + at);
      for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(tiles.data() + (block + 1) * bytes + at, 1);
    }
    f16->decode(halves.data() + 2 * block * count, rows.data(), count);
    codec->store(part, rows.data(), tokens, dim, tiles.data() + block * bytes);
    block = (block + 1) % blocks;
    benchmark::ClobberMemory();
  }
  state.counters["ns_a_value"] = benchmark::Counter(static_cast<double>(count * state.iterations()) * 1e-9,
                                                    benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void store_keys(benchmark::State& state) { store(state, KvPart::keys); }
void store_values(benchmark::State& state) { store(state, KvPart::values); }

const std::vector<std::string> kArguments = {"format", "dim"};

BENCHMARK(store_keys)
    ->ArgNames(kArguments)
    ->ArgsProduct({benchmark::CreateDenseRange(0, kLastFormat, 1), {32, 64, 128}})
    ->MinTime(0.05);
BENCHMARK(store_values)
    ->ArgNames(kArguments)
    ->ArgsProduct({benchmark::CreateDenseRange(0, kLastFormat, 1), {32, 64, 128}})
    ->MinTime(0.05);

}  // namespace
}  // namespace millrace
