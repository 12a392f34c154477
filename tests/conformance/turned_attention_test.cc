// Attention over tiles whose keys were stored before RoPE (level_attention.h): keys are rotated to their slots,
// outliers count in place of what levels say, and the first tokens of a stream are as they were.
#include "attention/key_turns.h"
#include "base/philox.h"
#include "kv/codec.h"
#include "level_attention.h"
#include "tensor/half.h"

namespace millrace {
namespace {

using namespace testing;

struct TurnedShape {
  std::string codec;
  int64_t dim, block_tokens, pairs;
  bool half = true;
  int64_t first_slot = 0;
  bool highest = false;  // nearly all levels are

  // Whole blocks among so many slots of the head.
  int64_t encoded(int64_t slots) const { return first_slot + slots / block_tokens * block_tokens; }
};

class TurnedLevels : public LevelHead {
 public:
  static constexpr int64_t kTokens = 768;

  explicit TurnedLevels(const TurnedShape& of) : shape_(of), codec_(find_kv_codec(of.codec).value()) {
    dim = of.dim;
    block_tokens = of.block_tokens;
    first_slot = of.first_slot;
    for (int64_t p = 0; p < of.pairs; ++p)
      rope_.frequencies.push_back(std::pow(1e4, -static_cast<double>(p) / static_cast<double>(of.pairs)));
    rope_.half = of.half;
    turns_ = KeyTurnTables::create({&rope_, 1}, block_tokens, first_slot + kTokens).value();
    tiles = codec_->level_tiles(block_tokens, dim).value();
    tiles.turns = &turns_.of(0);
    fill(KvPart::keys, keys);
    fill(KvPart::values, values);
  }

 private:
  double draw() { return philox_uniform(5, 11, next_++); }

  // A row of f16, which is also what it stands for.
  static void put_rows(const std::vector<float>& rows, std::vector<uint8_t>& halves) {
    for (const float x : rows) {
      const uint16_t half = f32_to_f16(x);
      halves.push_back(static_cast<uint8_t>(half & 255));
      halves.push_back(static_cast<uint8_t>(half >> 8));
    }
  }

  std::vector<float> random_block(KvPart part) {
    std::vector<float> rows;
    for (int64_t i = 0; i < block_tokens * dim; ++i) {
      if (shape_.highest) {
        const bool lowest = part == KvPart::keys ? i / dim % tiles.key_tokens == 7 : i % dim == 3;
        rows.push_back(lowest ? -1.0f : 1.0f);
        continue;
      }
      // Some channels of keys are large in every token, and some values are far from the others.
      const double size = (part == KvPart::keys ? i % dim % 11 == 5 ? 4 : 1 : 0.5) * (draw() < 0.02 ? 4 : 1);
      rows.push_back(f16_to_f32(f32_to_f16(static_cast<float>(size * (2 * draw() - 0.9)))));
    }
    return rows;
  }

  // Outliers at the edges of their groups, twice at the same place, and beyond, as a damaged file may have them.
  void move_outliers(KvPart part, std::vector<uint8_t>& tile) {
    const int64_t groups = part == KvPart::keys ? block_tokens / tiles.key_tokens * dim : block_tokens;
    const int64_t places = part == KvPart::keys ? tiles.key_tokens : dim;
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t o = 0; o < tiles.outliers; ++o) {
        const int64_t edges[] = {0, places - 1, 65535, places / 2 - 1, places / 2};
        if (draw() < 0.4) continue;
        const auto place = static_cast<uint16_t>(edges[static_cast<size_t>(5 * draw())]);
        std::memcpy(tile.data() + tiles.outliers_at + 4 * (g * tiles.outliers + o), &place, 2);
      }
    }
  }

  double half_at(const std::vector<uint8_t>& tile, int64_t at) const {
    uint16_t half;
    std::memcpy(&half, tile.data() + at, 2);
    return f16_to_f32(half);
  }

  // By the definition of LevelTiles.
  double stored_value(KvPart part, const std::vector<uint8_t>& tile, int64_t token, int64_t d) const {
    const bool keys_part = part == KvPart::keys;
    const int64_t group = keys_part ? token / tiles.key_tokens * dim + d : token;
    const int64_t place = keys_part ? token % tiles.key_tokens : d, last = (keys_part ? tiles.key_tokens : dim) - 1;
    for (int64_t o = 0; o < tiles.outliers; ++o) {
      const int64_t at = tiles.outliers_at + 4 * (group * tiles.outliers + o);
      if (std::min<int64_t>(tile[static_cast<size_t>(at)] + 256 * tile[static_cast<size_t>(at + 1)], last) == place)
        return half_at(tile, at + 2);
    }
    const int64_t unit_values = affine_unit_values(tiles.bits), within = d % unit_values;
    const int low_bits = tiles.bits == 4 ? 4 : 2;
    const uint8_t* unit = tile.data() + token * tiles.stride + d / unit_values * affine_unit_bytes(tiles.bits);
    int level = unit[within % 8] >> (within / 8 * low_bits) & ((1 << low_bits) - 1);
    if (tiles.bits == 3) level += 4 * (unit[8 + within / 8] >> (within % 8) & 1);
    const float* codes = keys_part ? tiles.codes : value_codes_of(tiles);
    return codes[level] * half_at(tile, tiles.scales_at + 2 * group) + half_at(tile, tiles.zeros_at + 2 * group);
  }

  // A key to its slot.
  void turn(std::vector<double>& key, int64_t slot) const {
    for (int64_t p = 0; p < shape_.pairs; ++p) {
      const auto x = static_cast<size_t>(shape_.half ? p : 2 * p);
      const auto y = static_cast<size_t>(shape_.half ? p + shape_.pairs : 2 * p + 1);
      const double angle = static_cast<double>(slot) * rope_.frequencies[static_cast<size_t>(p)];
      const double a = key[x], b = key[y];
      key[x] = a * std::cos(angle) - b * std::sin(angle);
      key[y] = a * std::sin(angle) + b * std::cos(angle);
    }
  }

  void fill(KvPart part, Part& out) {
    for (int64_t slot = first_slot; slot < first_slot + kTokens; slot += block_tokens) {
      std::vector<uint8_t> tile(static_cast<size_t>(codec_->tile_bytes(block_tokens, dim))), raw;
      codec_->store(part, random_block(part).data(), block_tokens, dim, tile.data());
      if (tiles.outliers > 0) move_outliers(part, tile);
      const int64_t sinks = slot == 0 ? tiles.sink_tokens : 0;
      const std::vector<float> rows = random_block(part);
      put_rows(rows, raw);
      if (sinks > 0) std::memcpy(tile.data() + tiles.sink_at, raw.data(), static_cast<size_t>(2 * sinks * dim));
      for (int64_t token = 0; token < block_tokens; ++token) {
        std::vector<double> row;
        for (int64_t d = 0; d < dim; ++d) row.push_back(stored_value(part, tile, token, d));
        if (part == KvPart::keys) turn(row, slot + token);
        if (token < sinks) row.assign(rows.begin() + token * dim, rows.begin() + (token + 1) * dim);
        out.decoded.insert(out.decoded.end(), row.begin(), row.end());
      }
      out.raw.insert(out.raw.end(), rows.begin(), rows.end());
      out.tiles.push_back(std::move(tile));
      out.rows.push_back(std::move(raw));
    }
  }

  TurnedShape shape_;
  std::shared_ptr<const KvCodec> codec_;
  KeyRope rope_;
  KeyTurnTables turns_;
  uint64_t next_ = 0;
};

const std::vector<TurnedShape> kTurnedShapes = {
    {"kvquant:bits=2", 64, 64, 32},
    {"kvquant:bits=3", 64, 64, 32},
    {"kvquant:bits=4", 64, 64, 32},
    {"kvquant:bits=3", 128, 64, 64, false},
    {"kvquant:bits=2,group=32,outliers=4,sink=16", 96, 32, 48},
    {"kvquant:bits=3,group=128,outliers=2,sink=5", 96, 128, 32, false},
    {"kvquant:bits=4,group=32,outliers=3,sink=16", 128, 96, 32},
    {"kvquant:bits=2,group=64,outliers=1", 32, 192, 16},
    {"kvquant:bits=3,group=64,outliers=0,sink=0", 32, 64, 0},
    {"kvquant:bits=4,group=32", 32, 32, 16, false},
    {"kvquant:bits=3,group=32,outliers=2", 72, 32, 36},
    {"kvquant:bits=4,group=64,outliers=1", 80, 64, 16},
    {"kvquant:bits=2,group=64,outliers=1", 256, 64, 128},
    {"kvquant:bits=4,group=128,outliers=1", 512, 128, 256},
    {"kvquant:bits=3", 64, 64, 32, true, 16384 + 768},
    {"kvquant:bits=2", 128, 64, 64, true, 131072},
};

TEST(TurnedAttention, LoneQueryAndItsHeads) {
  for (const TurnedShape& shape : kTurnedShapes) {
    const TurnedLevels head(shape);
    const int64_t first = shape.first_slot;
    for (int64_t heads : {1, 2, 3, 4, 7, 8, 12, 13}) {
      check_levels(head, {.heads = heads, .first = first + 255, .encoded = shape.encoded(192)});
      if (HasFatalFailure()) return;
    }
    check_levels(head, {.heads = 4, .first = first + 500, .encoded = shape.encoded(384)});
    check_levels(head, {.heads = 1, .first = first + 500, .encoded = shape.encoded(384), .window = 150});
    check_levels(head, {.heads = 2, .first = first + 383, .encoded = shape.encoded(384), .softcap = 2});
    check_levels(head, {.heads = 1, .first = first + 255, .encoded = shape.encoded(384), .unify = true});
    if (HasFatalFailure()) return;
  }
}

TEST(TurnedAttention, QueriesOfABlock) {
  for (const TurnedShape& shape : kTurnedShapes) {
    const TurnedLevels head(shape);
    const int64_t first = shape.first_slot;
    check_levels(head, {.first = first + 384, .queries = 32, .encoded = shape.encoded(384)});
    check_levels(head, {.heads = 3, .first = first + 384, .queries = 17, .encoded = shape.encoded(384), .window = 70});
    check_levels(head, {.heads = 2, .first = first + 192, .queries = 30, .encoded = shape.encoded(192)});
    check_levels(head, {.heads = 5, .first = first + 240, .queries = 7, .encoded = shape.encoded(192), .window = 100});
    if (HasFatalFailure()) return;
  }
}

// Equal queries, weights and levels: sums are as large as whole numbers get.
TEST(TurnedAttention, LargestSums) {
  for (const int64_t pairs : {0, 256}) {
    const TurnedShape shape{"kvquant:bits=4,group=32,outliers=0,sink=0", 512, 32, pairs, true, 0, true};
    const TurnedLevels of(shape);
    const LevelCall call{.heads = 2, .first = 255, .encoded = 256};
    const std::vector<float> q(static_cast<size_t>(2 * of.dim), 1e-4f);
    const std::vector<double> want = plain_row(of, call, 0, 255, q.data());
    for (const KernelTable& table : level_tables()) {
      const LevelPartial out = run_levels(table, of, call, 0, q, 0, 1, 0, 2);
      for (int64_t d = 0; d < of.dim; ++d)
        ASSERT_NEAR(out.acc[static_cast<size_t>(d)] / out.sum[0], want[static_cast<size_t>(d)], 2e-3)
            << isa_name(table.isa) << " " << d;
      ASSERT_NEAR(out.max[0] + std::log(out.sum[0]), want[static_cast<size_t>(of.dim)], 4e-3) << isa_name(table.isa);
    }
  }
}

// A query that is not a number has results that are none, and leaves its companions alone.
TEST(TurnedAttention, NaNStaysInItsRow) {
  const TurnedLevels of(kTurnedShapes[1]);
  const LevelCall call{.heads = 3, .first = 255, .encoded = 192};
  const std::vector<float> q = random_values(3 * of.dim, 3);
  std::vector<float> bad = q;
  bad[static_cast<size_t>(of.dim + 5)] = NAN;
  for (const KernelTable& table : level_tables()) {
    const LevelPartial before = run_levels(table, of, call, 0, q, 0, 1, 0, 3);
    const LevelPartial after = run_levels(table, of, call, 0, bad, 0, 1, 0, 3);
    for (const int64_t row : {0, 2})
      ASSERT_EQ(std::memcmp(before.acc.data() + row * of.dim, after.acc.data() + row * of.dim,
                            static_cast<size_t>(of.dim) * sizeof(float)),
                0);
    ASSERT_TRUE(std::isnan(after.acc[static_cast<size_t>(of.dim)] / after.sum[1])) << isa_name(table.isa);
  }
}

}  // namespace
}  // namespace millrace
