// Attention over tiles of random levels (level_attention.h).
#include "level_attention.h"

#include "base/philox.h"
#include "tensor/half.h"

namespace millrace {
namespace {

using namespace testing;

constexpr int64_t kLevelTokens = 512;

struct LevelShape {
  int bits;
  int64_t dim, key_tokens, group, block_tokens;
  bool codes = false;
  bool highest = false;  // all levels are
};

// One head's blocks: random levels, scales and zeros, of which the first `encoded` slots are read, and raw rows of f16.
class RandomLevels : public LevelHead {
 public:
  explicit RandomLevels(const LevelShape& of) : shape(of) {
    dim = shape.dim;
    block_tokens = shape.block_tokens;
    if (shape.codes)
      for (int i = 0; i < 16; ++i)
        codes[i] = std::clamp(std::round(13.0f * std::sinh(0.3f * (static_cast<float>(i) - 7.4f))), -63.0f, 63.0f);
    tiles = {.bits = shape.bits, .codes = shape.codes ? codes : nullptr};
    tiles.stride = affine_row_bytes(shape.bits, shape.dim);
    tiles.key_tokens = shape.key_tokens;
    tiles.group = shape.group;
    const int64_t groups = (shape.dim + shape.group - 1) / shape.group;
    const int64_t scales = std::max(shape.block_tokens * groups,
                                    shape.key_tokens > 0 ? shape.block_tokens / shape.key_tokens * shape.dim : 0);
    tiles.scales_at = shape.block_tokens * tiles.stride;
    tiles.zeros_at = tiles.scales_at + 2 * scales;
    for (Part* part : {&keys, &values}) fill(*part, groups, part == &keys);
  }

  LevelShape shape;
  float codes[16] = {};

 private:
  double draw() { return philox_uniform(5, 7, next_++); }

  void put_half(uint8_t* to, double x, std::vector<float>& out) {
    const uint16_t half = f32_to_f16(static_cast<float>(x));
    std::memcpy(to, &half, 2);
    out.push_back(f16_to_f32(half));
  }

  void fill(Part& part, int64_t groups, bool is_keys) {
    const bool columns = is_keys && shape.key_tokens > 0;
    for (int64_t b = 0; b < kLevelTokens / shape.block_tokens; ++b) {
      std::vector<uint8_t> tile(static_cast<size_t>(2 * tiles.zeros_at + 64)), rows;
      std::vector<float> scale, zero;
      for (int64_t i = 0; i < tiles.scales_at; ++i)
        tile[static_cast<size_t>(i)] = shape.highest ? 0xff : static_cast<uint8_t>(256 * draw());
      for (int64_t i = 0; i < (tiles.zeros_at - tiles.scales_at) / 2; ++i) {
        // A few are large, as of channels that are large in every token.
        const double s = (draw() < 0.05 ? 4 : 1) * (0.2 + draw()) / (shape.codes ? 2 * kMaxCode : 1 << shape.bits);
        put_half(tile.data() + tiles.scales_at + 2 * i, s, scale);
        const double middle = shape.codes ? 2 * kMaxCode * (draw() - 0.5) : (0.3 + 0.4 * draw()) * (1 << shape.bits);
        put_half(tile.data() + tiles.zeros_at + 2 * i, -s * middle, zero);
      }
      for (int64_t token = 0; token < shape.block_tokens; ++token) {
        for (int64_t d = 0; d < shape.dim; ++d) {
          const int64_t unit_values = affine_unit_values(shape.bits), within = d % unit_values;
          const int low_bits = shape.bits == 4 ? 4 : 2;
          const uint8_t* unit = tile.data() + token * tiles.stride + d / unit_values * affine_unit_bytes(shape.bits);
          int level = unit[within % 8] >> (within / 8 * low_bits) & ((1 << low_bits) - 1);
          if (shape.bits == 3) level += 4 * (unit[8 + within / 8] >> (within % 8) & 1);
          const auto of = static_cast<size_t>(columns ? token / shape.key_tokens * shape.dim + d
                                                      : token * groups + d / shape.group);
          part.decoded.push_back((shape.codes ? codes[level] : static_cast<float>(level)) * scale[of] + zero[of]);
          rows.resize(rows.size() + 2);
          put_half(rows.data() + rows.size() - 2, 2 * draw() - 1, part.raw);
        }
      }
      part.tiles.push_back(std::move(tile));
      part.rows.push_back(std::move(rows));
    }
  }

  uint64_t next_ = 0;
};

const std::vector<LevelShape> kShapes = {
    {2, 64, 32, 32, 32},     {2, 128, 32, 32, 32},       {4, 64, 32, 32, 32},      {4, 128, 64, 64, 64},
    {2, 128, 128, 128, 128}, {4, 128, 0, 64, 32},        {4, 64, 0, 64, 32},       {2, 64, 0, 64, 32},
    {3, 64, 0, 64, 32},      {2, 96, 0, 32, 32},         {4, 72, 0, 32, 64},       {2, 40, 32, 32, 32},
    {4, 40, 32, 32, 32},     {2, 32, 32, 32, 32},        {4, 16, 64, 64, 64},      {2, 256, 32, 128, 32},
    {2, 80, 0, 128, 32},     {4, 64, 0, 64, 32, true},   {2, 64, 0, 64, 32, true}, {4, 512, 32, 32, 32},
    {3, 128, 0, 128, 32},    {3, 96, 0, 32, 32},         {3, 72, 0, 32, 64},       {3, 40, 32, 32, 32},
    {3, 32, 0, 32, 32},      {3, 128, 0, 128, 32, true}, {4, 96, 0, 96, 32, true}, {3, 64, 0, 32, 64, true},
};

TEST(LevelAttention, LoneQueryAndItsHeads) {
  for (const LevelShape& shape : kShapes) {
    const RandomLevels head(shape);
    for (int64_t heads : {1, 2, 3, 4, 5, 7, 8, 12, 13}) {
      check_levels(head, {.heads = heads, .first = 255, .encoded = 128});
      if (HasFatalFailure()) return;
    }
    check_levels(head, {.heads = 4, .first = 447, .encoded = 384});
    check_levels(head, {.heads = 1, .first = 447, .encoded = 384, .window = 150});
    check_levels(head, {.heads = 2, .first = 383, .encoded = 384, .softcap = 2});
    check_levels(head, {.heads = 1, .first = 255, .encoded = 256, .unify = true});
    if (HasFatalFailure()) return;
  }
}

TEST(LevelAttention, QueriesOfABlock) {
  for (const LevelShape& shape : kShapes) {
    const RandomLevels head(shape);
    check_levels(head, {.first = 416, .queries = 32, .encoded = 384});
    check_levels(head, {.heads = 3, .first = 416, .queries = 17, .encoded = 384, .window = 70});
    check_levels(head, {.heads = 2, .first = 256, .queries = 5, .encoded = 256});
    if (HasFatalFailure()) return;
  }
}

// Equal queries, weights and codes: sums are as large as whole numbers get.
TEST(LevelAttention, LargestSums) {
  for (const LevelShape& shape : {LevelShape{4, 512, 0, 512, 32, true, true}, {4, 512, 32, 128, 32, true, true}}) {
    const RandomLevels of(shape);
    const LevelCall call{.heads = 2, .first = 255, .encoded = 256};
    const std::vector<float> q(static_cast<size_t>(2 * shape.dim), 1e-4f);
    const std::vector<double> want = plain_row(of, call, 0, 255, q.data());
    for (const KernelTable& table : level_tables()) {
      const LevelPartial out = run_levels(table, of, call, 0, q, 0, 1, 0, 2);
      for (int64_t d = 0; d < shape.dim; ++d)
        ASSERT_NEAR(out.acc[static_cast<size_t>(d)] / out.sum[0], want[static_cast<size_t>(d)], 2e-3)
            << isa_name(table.isa) << " " << d;
      ASSERT_NEAR(out.max[0] + std::log(out.sum[0]), want[static_cast<size_t>(shape.dim)], 4e-3);
    }
  }
}

// A query that is not a number has results that are none, and leaves its companions alone.
TEST(LevelAttention, NaNStaysInItsRow) {
  for (const LevelShape& shape : {kShapes[0], kShapes[2], kShapes[5]}) {
    const RandomLevels of(shape);
    const LevelCall call{.heads = 3, .first = 255, .encoded = 224};
    std::vector<float> q = testing::random_values(3 * shape.dim, 3);
    for (const KernelTable& table : level_tables()) {
      const LevelPartial before = run_levels(table, of, call, 0, q, 0, 1, 0, 3);
      std::vector<float> bad = q;
      bad[static_cast<size_t>(shape.dim + 5)] = NAN;
      const LevelPartial after = run_levels(table, of, call, 0, bad, 0, 1, 0, 3);
      for (const int64_t row : {0, 2})
        ASSERT_EQ(std::memcmp(before.acc.data() + row * shape.dim, after.acc.data() + row * shape.dim,
                              static_cast<size_t>(shape.dim) * sizeof(float)),
                  0);
      ASSERT_TRUE(std::isnan(after.acc[static_cast<size_t>(shape.dim)] / after.sum[1])) << isa_name(table.isa);
    }
  }
}

}  // namespace
}  // namespace millrace
