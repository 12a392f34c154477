// What codecs encode token by token is the tile of the whole block, and columns that are encoded together are those
// that are encoded one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include "base/cpu.h"
#include "kv/codec.h"
#include "kv/codecs/kvquant.h"
#include "kv/codecs/level_columns.h"
#include "tensor/half.h"

namespace millrace {
namespace {

// Exact f16s, some channels much larger than others.
std::vector<float> drawn_rows(int64_t tokens, int64_t dim, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> rows;
  for (int64_t i = 0; i < tokens * dim; ++i)
    rows.push_back(f16_to_f32(f32_to_f16((normal(random) - 0.3f) * (i % dim % 7 == 3 ? 20.0f : 1.0f))));
  return rows;
}

std::shared_ptr<const KvCodec> codec_of(const std::string& text) { return find_kv_codec(text).value(); }

TEST(CodecTokens, OnlyColumnsWaitForTheirBlock) {
  for (const auto& entry : kv_codecs().entries()) {
    const auto one = codec_of(entry.info.name);
    const bool columns = entry.info.name == "kivi" || entry.info.name == "kvquant";
    EXPECT_EQ(one->by_token(KvPart::keys), !columns) << entry.info.name;
    EXPECT_TRUE(one->by_token(KvPart::values)) << entry.info.name;
  }
}

// In any order, over other bytes, with other rows before: the tile of the block, to the last byte.
TEST(CodecTokens, MakeTheTileOfTheBlock) {
  for (const char* text : {"kivi:bits=2", "kivi:bits=4,group=64", "flexgen_kv", "flexgen_kv:bits=3,group=32", "atom_kv",
                           "quarot_kv:bits=2", "turboquant:bits=3", "kvquant", "kvquant:outliers=3,sink=2"}) {
    const auto one = codec_of(text);
    for (const int64_t dim : {8, 32, 48, 80, 128}) {
      const int64_t tokens = 2 * one->block_multiple();
      for (const KvPart part : {KvPart::keys, KvPart::values}) {
        if (!one->by_token(part)) continue;
        const auto rows = drawn_rows(tokens, dim, 3), others = drawn_rows(tokens, dim, 4);
        const auto bytes = static_cast<size_t>(one->tile_bytes(tokens, dim));
        std::vector<uint8_t> whole(bytes + 1, 0x5a), single(bytes + 1, 0xa5);
        one->store(part, rows.data(), tokens, dim, whole.data());
        std::vector<int64_t> order;
        for (int64_t t = 0; t < tokens; ++t) order.push_back(t);
        std::mt19937_64 random(5);
        for (const auto* from : {&others, &rows}) {
          std::ranges::shuffle(order, random);
          for (const int64_t t : order) one->store_token(part, from->data() + t * dim, t, tokens, dim, single.data());
        }
        EXPECT_EQ(whole.back(), 0x5a);
        EXPECT_EQ(single.back(), 0xa5);
        single.back() = 0x5a;
        EXPECT_EQ(whole, single) << text << " " << dim;
      }
    }
  }
}

// Columns one by one, by the fit of a group.
class KiviOneByOne final : public MinMaxCodec {
 public:
  explicit KiviOneByOne(int bits) : MinMaxCodec({.bits = bits, .key_tokens = 32, .group = 32}, "one by one", 0) {}

 protected:
  void fit_columns(LevelColumns& columns) const override { LevelCodec::fit_columns(columns); }
};

class KvQuantOneByOne final : public KvQuant {
 public:
  using KvQuant::KvQuant;

 protected:
  void fit_columns(LevelColumns& columns) const override { LevelCodec::fit_columns(columns); }
};

// Any codes, under the range of a group.
class Coded final : public LevelCodec {
 public:
  Coded(int bits, const float* codes, bool together)
      : LevelCodec({.bits = bits, .key_tokens = 32, .codes = codes}), together_(together) {}
  std::string text() const override { return "coded"; }

 protected:
  void fit(KvPart part, const float* values, int64_t n, FittedGroup& out) const override {
    const auto [low, high] = std::minmax_element(values, values + n);
    out.zero = f32_to_f16(*low);
    out.scale = f32_to_f16(*high - *low);
    fit_codes(part, values, n, out);
  }
  void fit_columns(LevelColumns& columns) const override {
    if (!together_) return LevelCodec::fit_columns(columns);
    column_level_kernels().ranges(columns);
    for (int64_t c = 0; c < kColumns; ++c)
      columns.set_grid(c, f32_to_f16(columns.high[c] - columns.low[c]), f32_to_f16(columns.low[c]));
    columns.fit_codes(shape().codes);
  }

 private:
  bool together_;
};

TEST(CodecTokens, ColumnsTogetherAreColumnsOneByOne) {
  for (const int bits : {2, 3, 4}) {
    std::array<float, 16> uneven{}, even{};
    for (int i = 0; i < 1 << bits; ++i) {
      uneven[static_cast<size_t>(i)] = static_cast<float>(i * i) / static_cast<float>(1 << 2 * bits);
      even[static_cast<size_t>(i)] = static_cast<float>(2 * i + 1 - (1 << bits)) / static_cast<float>(1 << bits);
    }
    for (const int64_t dim : {8, 48, 64, 80}) {
      const auto equal = [&](const KvCodec& together, const KvCodec& alone) {
        constexpr int64_t kTokens = 64;
        for (uint64_t seed = 0; seed < 10; ++seed) {
          auto rows = drawn_rows(kTokens, dim, seed);
          for (int64_t t = 0; t < kTokens; ++t) rows[static_cast<size_t>(t * dim + 2)] = 1.5f;  // all equal
          std::vector<uint8_t> a(static_cast<size_t>(together.tile_bytes(kTokens, dim))), b(a);
          together.store(KvPart::keys, rows.data(), kTokens, dim, a.data());
          alone.store(KvPart::keys, rows.data(), kTokens, dim, b.data());
          EXPECT_EQ(a, b) << together.text() << ", " << bits << " bits, " << dim;
        }
      };
      if (bits != 3) equal(*codec_of("kivi:bits=" + std::to_string(bits)), KiviOneByOne(bits));
      const KvQuantShape shape{.bits = bits, .group = 32};
      equal(KvQuant(shape), KvQuantOneByOne(shape));
      equal(Coded(bits, uneven.data(), true), Coded(bits, uneven.data(), false));
      equal(Coded(bits, even.data(), true), Coded(bits, even.data(), false));
    }
  }
}

// By its definition, with all values sorted.
TEST(CodecTokens, TheOutlierOfAColumnIsFarthestFromItsMedian) {
  std::mt19937_64 random(9);
  for (const int64_t tokens : {32, 64, 128}) {
    for (int round = 0; round < 50; ++round) {
      LevelColumns columns;
      columns.tokens = tokens;
      const auto rows = drawn_rows(tokens, kColumns, random());
      columns.load(rows.data(), kColumns, kColumns, true);
      std::vector<uint8_t> stored(4 * kColumns);
      columns.take_outliers(kColumns, stored.data());
      column_level_kernels().ranges(columns);
      for (int64_t c = 0; c < kColumns; ++c) {
        std::vector<float> values;
        for (int64_t t = 0; t < tokens; ++t) values.push_back(rows[static_cast<size_t>(t * kColumns + c)]);
        std::vector<float> sorted = values;
        std::ranges::sort(sorted);
        const double median = sorted[sorted.size() / 2];
        double farthest = 0;
        for (const float x : values) farthest = std::max(farthest, std::fabs(x - median));
        uint16_t place, half;
        std::memcpy(&place, stored.data() + 4 * c, 2);
        std::memcpy(&half, stored.data() + 4 * c + 2, 2);
        ASSERT_LT(place, tokens);
        const float value = values[place];
        EXPECT_EQ(half, f32_to_f16(value));
        EXPECT_EQ(std::fabs(value - median), farthest);
        EXPECT_EQ(std::ranges::find(values, value) - values.begin(), place) << "the first of equal ones";
        values.erase(values.begin() + place);
        EXPECT_EQ(columns.low[c], std::ranges::min(values));
        EXPECT_EQ(columns.high[c], std::ranges::max(values));
      }
    }
  }
}

}  // namespace
}  // namespace millrace
