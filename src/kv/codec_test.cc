// KV codecs: tiles that every member gives back, the error of KIVI's levels against its definition, and the layout,
// tails and errors that a codec brings.
#include "kv/codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/cpu.h"
#include "base/philox.h"
#include "kv/pool.h"
#include "tensor/half.h"

namespace millrace {
namespace {

std::shared_ptr<const KvCodec> codec(const std::string& text) {
  auto made = find_kv_codec(text);
  EXPECT_TRUE(made.ok() && *made) << text << (made.ok() ? "" : made.error().message);
  return made.ok() ? *made : nullptr;
}

std::string refusal(const std::string& text) {
  auto made = find_kv_codec(text);
  return made.ok() ? "" : made.error().message;
}

// Rows of values that are exactly f16: some channels are much larger than the others, as those of keys are.
std::vector<float> tile_rows(int64_t tokens, int64_t dim, uint64_t seed, double size = 1) {
  std::vector<float> rows;
  for (int64_t i = 0; i < tokens * dim; ++i) {
    const double large = i % dim % 7 == 3 ? 20 : 1;
    const double x = (philox_uniform(seed, 1, static_cast<uint64_t>(i)) - 0.3) * large * size;
    rows.push_back(f16_to_f32(f32_to_f16(static_cast<float>(x))));
  }
  return rows;
}

std::vector<float> stored_and_loaded(const KvCodec& codec, KvPart part, const KernelTable& table,
                                     const std::vector<float>& rows, int64_t tokens, int64_t dim) {
  std::vector<uint8_t> tile(static_cast<size_t>(codec.tile_bytes(tokens, dim)) + 1, 0x5a);
  std::vector<uint16_t> halves(static_cast<size_t>(tokens * dim) + 1, 0x5a5a);
  codec.store(part, rows.data(), tokens, dim, tile.data());
  codec.load(part, table, tile.data(), tokens, dim, reinterpret_cast<uint8_t*>(halves.data()));
  EXPECT_EQ(tile.back(), 0x5a);
  EXPECT_EQ(halves.back(), 0x5a5a);
  std::vector<float> out;
  for (int64_t i = 0; i < tokens * dim; ++i) out.push_back(f16_to_f32(halves[static_cast<size_t>(i)]));
  return out;
}

TEST(KvCodecs, EveryMemberGivesFiniteRowsAndTheSameBitsOnEveryTable) {
  for (const auto& entry : kv_codecs().entries()) {
    const auto one = codec(entry.info.name);
    for (int64_t blocks : {1, 3}) {
      for (int64_t dim : {8, 48, 64, 80, 128}) {
        if (!one->check(dim).ok()) continue;
        const int64_t tokens = blocks * one->block_multiple();
        for (double size : {0.0, 1e-9, 1e-4, 1.0, 3000.0}) {
          const auto rows = tile_rows(tokens, dim, 5, size);
          for (KvPart part : {KvPart::keys, KvPart::values}) {
            const auto expected = stored_and_loaded(*one, part, make_kernel_table(Isa::ref), rows, tokens, dim);
            for (float x : expected) ASSERT_TRUE(std::isfinite(x));
            for (Isa isa : isa_levels()) {
              if (isa == Isa::ref) continue;
              EXPECT_EQ(stored_and_loaded(*one, part, make_kernel_table(isa), rows, tokens, dim), expected)
                  << entry.info.name << " " << isa_name(isa) << " " << dim;
            }
          }
        }
      }
    }
  }
}

// |x - decoded| is at most half a step of the group, and the rounding of the scale, times the highest level, and of the
// result to f16.
TEST(KvCodecs, KivisErrorIsHalfAStepOfTheGroup) {
  const KernelTable table = make_kernel_table(detect_isa());
  for (int64_t bits : {2, 4}) {
    for (int64_t group : {32, 64}) {
      const auto kivi = codec("kivi:bits=" + std::to_string(bits) + ",group=" + std::to_string(group));
      constexpr int64_t kTokens = 64, kDim = 80;
      const auto rows = tile_rows(kTokens, kDim, 9);
      const double top = std::pow(2, static_cast<double>(bits)) - 1;
      for (KvPart part : {KvPart::keys, KvPart::values}) {
        const auto out = stored_and_loaded(*kivi, part, table, rows, kTokens, kDim);
        for (int64_t t = 0; t < kTokens; ++t) {
          for (int64_t d = 0; d < kDim; ++d) {
            double low = 1e9, high = -1e9;
            for (int64_t i = 0; i < kTokens * kDim; ++i) {
              const int64_t other_t = i / kDim, other_d = i % kDim;
              const bool same = part == KvPart::keys ? other_d == d && other_t / group == t / group
                                                     : other_t == t && other_d / group == d / group;
              if (!same) continue;
              low = std::min(low, static_cast<double>(rows[static_cast<size_t>(i)]));
              high = std::max(high, static_cast<double>(rows[static_cast<size_t>(i)]));
            }
            const double step = (high - low) / top, most = std::max(std::fabs(low), std::fabs(high));
            const double bound = step / 2 + step * top / 2048 + most / 2048 + 1e-6;
            const auto at = static_cast<size_t>(t * kDim + d);
            ASSERT_LE(std::fabs(static_cast<double>(out[at]) - static_cast<double>(rows[at])), bound)
                << bits << " " << group << " " << t << " " << d;
          }
        }
      }
    }
  }
}

// Keys whose channels differ in size: scales per channel lose less than scales per token would.
TEST(KvCodecs, KivisKeysAreScaledPerChannel) {
  const KernelTable table = make_kernel_table(Isa::ref);
  const auto kivi = codec("kivi:bits=2");
  const auto rows = tile_rows(32, 64, 3);
  const auto error = [&](KvPart part) {
    const auto out = stored_and_loaded(*kivi, part, table, rows, 32, 64);
    double sum = 0;
    for (size_t i = 0; i < rows.size(); ++i)
      if (i % 64 % 7 != 3) sum += std::pow(static_cast<double>(out[i] - rows[i]), 2);  // of the small channels
    return sum;
  };
  EXPECT_LT(5 * error(KvPart::keys), error(KvPart::values));
}

TEST(KvCodecs, LargestValuesStayFinite) {
  const auto kivi = codec("kivi:bits=4");
  std::vector<float> rows(32 * 32);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = i % 3 == 0 ? 65504.0f : i % 3 == 1 ? -65504.0f : 65472.0f;
  for (KvPart part : {KvPart::keys, KvPart::values})
    for (float x : stored_and_loaded(*kivi, part, make_kernel_table(Isa::ref), rows, 32, 32))
      ASSERT_TRUE(std::isfinite(x));
}

TEST(KvCodecs, Names) {
  EXPECT_EQ(codec("kivi")->text(), "kivi:bits=2,group=32,residual=0");
  EXPECT_EQ(codec("kivi:residual=96,bits=4")->text(), "kivi:bits=4,group=32,residual=96");
  EXPECT_EQ(codec("kivi:bits=2")->bits_per_value(), 3);
  EXPECT_EQ(codec("kivi:bits=4")->bits_per_value(), 5);
  EXPECT_EQ(codec("kivi:bits=4,group=128")->bits_per_value(), 4.25);
  for (const char* row_format : {"f16", "q8_0", "", "no_such"}) {
    auto found = find_kv_codec(row_format);
    EXPECT_TRUE(found.ok() && !*found) << row_format;
  }
  EXPECT_EQ(refusal("kivi:bits=3"), "KV format kivi: bits: must be 2 or 4, got 3");
  EXPECT_EQ(refusal("kivi:group=48"), "KV format kivi: group: must be 32, 64 or 128, got 48");
  EXPECT_NE(refusal("kivi:bits=9"), "");
  EXPECT_NE(refusal("kivi:width=9"), "");
}

TEST(KvCodecs, LayoutsOfACodec) {
  KvLayout layout{find_format("f32"), 16, {{2, 64}, {1, 80}}};
  layout.encode_with(codec("kivi:bits=2,residual=33"), 40);
  EXPECT_EQ(layout.format, find_format("f16"));
  EXPECT_EQ(layout.block_tokens, 32);
  EXPECT_EQ(layout.residual_blocks(), 2);
  EXPECT_EQ(layout.tail_tokens, 5 * 32) << "residual, own block, 40 drafted tokens in two";
  EXPECT_FALSE(layout.prefixes_shared());
  // 64 channels: 512 bytes of levels, 64 scales and zeros. 80: 24 bytes a row, 96 scales and zeros of values.
  EXPECT_EQ(layout.block_bytes(), 2 * 2 * (512 + 256) + 2 * (768 + 384));
  EXPECT_EQ(layout.state_bytes(), 2 * 160 * (2 * 64 + 80) * 2);
  EXPECT_EQ(layout.state_name(), "KV tails");
  layout.encode_with(codec("kivi"));
  EXPECT_EQ(layout.tail_tokens, 64);
  EXPECT_TRUE(layout.prefixes_shared());
  layout.block_tokens = 40;
  layout.encode_with(codec("kivi:group=64"));
  EXPECT_EQ(layout.block_tokens, 64);
}

TEST(KvCodecs, PoolsOfACodec) {
  KvLayout layout{find_format("f16"), 16, {{2, 64}}};
  layout.encode_with(codec("kivi"));
  auto pool = KvPool::create(layout, 3, {.states = 2});
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(pool->bytes(), 3 * layout.block_bytes() + 2 * layout.state_bytes());
  EXPECT_EQ(pool->values(0, 0, 1) - pool->keys(0, 0, 0), 3 * 3 * 768);
  std::memset(pool->keys(0, 1, 1), 7, 768);
  std::memset(pool->values(0, 1, 0), 8, 768);
  pool->copy(1, 2);
  EXPECT_EQ(pool->keys(0, 2, 1)[767], 7);
  EXPECT_EQ(pool->values(0, 2, 0)[0], 8);
  const auto virtual_pool = KvPool::create(layout, 3, {.mode = KvPoolMode::virtual_ranges, .longest = 64, .states = 2});
  ASSERT_FALSE(virtual_pool.ok());
  EXPECT_EQ(virtual_pool.error().message,
            "KV pool: virtual is not for KV format kivi:bits=2,group=32,residual=0, whose blocks are not whole pages; "
            "choose paged");
  EXPECT_EQ(layout.use_whole_pages(4096).error().message, virtual_pool.error().message);
  EXPECT_EQ(layout.block_tokens, 32);
  KvLayout rows{find_format("f16"), 32, {{2, 64}}};
  rows.windows.push_back(layout);
  const std::string of_a_group =
      "KV pool: virtual is not for KV format kivi:bits=2,group=32,residual=0 of layers with a window, whose blocks are "
      "not whole pages; choose paged";
  EXPECT_EQ(rows.use_whole_pages(4096).error().message, of_a_group);
  EXPECT_EQ(rows.windows[0].block_tokens, 32);
  const auto group_pool = KvPool::create(rows, 3, {.mode = KvPoolMode::virtual_ranges, .longest = 64, .states = 2});
  ASSERT_FALSE(group_pool.ok());
  EXPECT_EQ(group_pool.error().message, of_a_group);
  layout.block_tokens = 64;
  EXPECT_EQ(layout.check().error().message,
            "KV format kivi:bits=2,group=32,residual=0: a tail of 64 tokens does not suit blocks of 64");
  layout.block_tokens = 32;
  layout.layers.push_back({.state_values = 12});
  EXPECT_EQ(layout.check().error().message,
            "KV format kivi:bits=2,group=32,residual=0: not for a model with recurrent layers; choose f16");
}

}  // namespace
}  // namespace millrace
