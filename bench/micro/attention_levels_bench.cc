// Attention over the tiles of KV codecs on one thread, beside rows of f16 and of smaller formats: time of a partition
// of 256 keys, and the bytes of keys and values that are read per second. Decode, with twice the heads that fit the
// last-level cache, and 32 queries. MILLRACE_ISA chooses the kernels.
//
// Arguments: format (0: f16), head size, query heads per KV head.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "attention/key_turns.h"
#include "base/cpu.h"
#include "formats/format.h"
#include "kernels/kernel_table.h"
#include "kv/codec.h"
#include "tensor/aligned_buffer.h"
#include "tensor/half.h"

namespace millrace {
namespace {

constexpr int64_t kMinBlock = 32, kDepth = 16384;
const char* const kFormats[] = {
    "f16",  "kivi:bits=2", "kivi:bits=4", "flexgen_kv", "quarot_kv:bits=2", "quarot_kv:bits=3", "turboquant",
    "q8_0", "q4_0",        "q5_0",        "f8_e4m3",    "kvquant:bits=2",   "kvquant",          "kvquant:bits=4"};
constexpr int64_t kLastFormat = std::size(kFormats) - 1;

int64_t cold_bytes() {
  const int64_t cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return std::clamp<int64_t>(2 * cache, int64_t{96} << 20, int64_t{1} << 30);
}

// Blocks of equal tokens: the same levels everywhere, at as many places as there are heads. codec null: rows.
class Tiles {
 public:
  Tiles(const KvCodec* codec, const Format* format, int64_t dim, bool cold)
      : format_(format),
        block_tokens_(codec ? std::max(kMinBlock, codec->block_multiple()) : kMinBlock),
        bytes_(codec ? codec->tile_bytes(block_tokens_, dim) : block_tokens_ * format->row_bytes(dim)),
        heads_(cold ? cold_bytes() / (2 * bytes_ * block_count()) + 1 : 1) {
    const int64_t blocks = block_count();
    memory_ = std::move(AlignedBuffer::allocate(2 * heads_ * blocks * bytes_, "tiles").value());
    std::vector<float> rows(static_cast<size_t>(block_tokens_ * dim));
    uint32_t state = 1;
    for (float& x : rows) {
      state = state * 1664525u + 1013904223u;
      x = f16_to_f32(f32_to_f16(static_cast<float>(state >> 8) * 0x1.0p-23f - 1.0f));
    }
    std::vector<uint8_t> tile(static_cast<size_t>(bytes_));
    for (int64_t i = 0; i < 2 * heads_ * blocks; ++i) {
      if (i < 2 * blocks && i % blocks == 0) encode(codec, i == 0 ? KvPart::keys : KvPart::values, rows, dim, tile);
      if (i >= 2 * blocks)
        std::memcpy(memory_.data() + i * bytes_, memory_.data() + i % (2 * blocks) * bytes_, tile.size());
      else
        std::memcpy(memory_.data() + i * bytes_, tile.data(), tile.size());
    }
  }

  int64_t heads() const { return heads_; }
  int64_t block_tokens() const { return block_tokens_; }
  int64_t bytes() const { return bytes_; }
  std::vector<const uint8_t*> blocks(int64_t head, KvPart part) const {
    std::vector<const uint8_t*> out;
    for (int64_t b = 0; b < block_count(); ++b)
      out.push_back(memory_.data() + ((2 * head + (part == KvPart::values ? 1 : 0)) * block_count() + b) * bytes_);
    return out;
  }

 private:
  void encode(const KvCodec* codec, KvPart part, const std::vector<float>& rows, int64_t dim,
              std::vector<uint8_t>& tile) const {
    if (codec) return codec->store(part, rows.data(), block_tokens_, dim, tile.data());
    format_->encode(rows.data(), tile.data(), block_tokens_ * dim);
  }

  const Format* format_;
  int64_t block_count() const { return kDepth / block_tokens_; }

  int64_t block_tokens_, bytes_, heads_;
  AlignedBuffer memory_;
};

void run(benchmark::State& state, int64_t queries) {
  const std::string name = kFormats[state.range(0)];
  const KernelTable table = make_kernel_table(select_isa().value());
  const Format* const format = find_format(name);
  const auto codec = find_kv_codec(name).value();  // null: rows
  const int64_t dim = state.range(1), group = state.range(2), rows = queries * group;
  state.SetLabel(name);
  if (codec && !table.attend_tiles) return state.SkipWithError("tiles are decoded to rows here");
  const Tiles tiles(codec.get(), format, dim, queries == 1);
  std::vector<std::vector<const uint8_t*>> keys, values;
  for (int64_t h = 0; h < tiles.heads(); ++h) {
    keys.push_back(tiles.blocks(h, KvPart::keys));
    values.push_back(tiles.blocks(h, KvPart::values));
  }
  std::optional<LevelTiles> levels;
  if (codec) levels = codec->level_tiles(tiles.block_tokens(), dim);
  KeyRope rope{.half = true};
  for (int64_t p = 0; p < dim / 2; ++p) rope.frequencies.push_back(std::pow(1e4, -2.0 * static_cast<double>(p) / dim));
  const KeyTurnTables turns = KeyTurnTables::create({&rope, 1}, tiles.block_tokens(), kDepth).value();
  if (codec && codec->before_rope()) levels->turns = &turns.of(0);
  const std::vector<float> q(static_cast<size_t>(rows * dim), 0.02f);
  std::vector<float> max(static_cast<size_t>(rows)), sum(max), acc(q.size());
  AttentionArgs a;
  a.q = q.data();
  a.q_stride = group * dim;
  a.queries = queries;
  a.group = group;
  a.head_dim = dim;
  a.first_query = kDepth;
  a.key_ahead = kDepth;
  a.block_tokens = tiles.block_tokens();
  a.row_bytes = format ? format->row_bytes(dim) : 2 * dim;
  a.encoded_end = kDepth;
  a.tiles = levels ? &*levels : nullptr;
  a.max = max.data();
  a.sum = sum.data();
  a.acc = acc.data();
  const auto attend = codec ? table.attend_tiles : table.find_attention(format)->run;
  int64_t at = 0;
  for (auto _ : state) {
    const auto head = static_cast<size_t>(at / kDepth % tiles.heads());
    a.k_blocks = keys[head].data();
    a.v_blocks = values[head].data();
    a.key_begin = at % kDepth;
    a.key_end = a.key_begin + kAttentionPartition;
    attend(a);
    at += kAttentionPartition;
    benchmark::DoNotOptimize(acc.data());
    benchmark::ClobberMemory();
  }
  const int64_t bytes = 2 * tiles.bytes() * kAttentionPartition / tiles.block_tokens() * state.iterations();
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(bytes) / 1e9, benchmark::Counter::kIsRate);
}

void decode_levels(benchmark::State& state) { run(state, 1); }
void prefill_levels(benchmark::State& state) { run(state, 32); }

const std::vector<std::string> kArguments = {"format", "dim", "group"};

BENCHMARK(decode_levels)
    ->ArgNames(kArguments)
    ->ArgsProduct({benchmark::CreateDenseRange(0, kLastFormat, 1), {64, 128}, {1, 4, 8}})
    ->MinTime(0.1);
BENCHMARK(prefill_levels)
    ->ArgNames(kArguments)
    ->ArgsProduct({benchmark::CreateDenseRange(0, kLastFormat, 1), {64, 128}, {1, 8}})
    ->MinTime(0.1);

}  // namespace
}  // namespace millrace
