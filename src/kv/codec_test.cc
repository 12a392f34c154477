// KV codecs: tiles that every member gives back, errors against each member's definition, rotations, and the layout,
// tails and errors that a codec brings.
#include "kv/codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/cpu.h"
#include "base/philox.h"
#include "kv/codecs/normal_codes.h"
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

// Members whose groups are channels of one token: the same bound, for keys and values alike.
TEST(KvCodecs, ErrorsWithinATokenAreHalfAStepOfTheGroup) {
  struct Case {
    const char* text;
    int64_t bits, group;
  };
  const KernelTable table = make_kernel_table(detect_isa());
  constexpr int64_t kTokens = 32, kDim = 80;
  const auto rows = tile_rows(kTokens, kDim, 9);
  for (const Case& c : {Case{"flexgen_kv", 4, 64},
                        {"flexgen_kv:bits=3,group=32", 3, 32},
                        {"flexgen_kv:bits=2", 2, 64},
                        {"atom_kv", 4, kDim},
                        {"atom_kv:bits=3", 3, kDim},
                        {"quarot_kv:clip=1,group=64", 4, 64}}) {
    const auto one = codec(c.text);
    const double top = std::pow(2, static_cast<double>(c.bits)) - 1;
    for (KvPart part : {KvPart::keys, KvPart::values}) {
      const auto out = stored_and_loaded(*one, part, table, rows, kTokens, kDim);
      for (int64_t t = 0; t < kTokens; ++t) {
        for (int64_t d = 0; d < kDim; ++d) {
          double low = 1e9, high = -1e9;
          for (int64_t i = d / c.group * c.group; i < std::min(kDim, (d / c.group + 1) * c.group); ++i) {
            low = std::min(low, static_cast<double>(rows[static_cast<size_t>(t * kDim + i)]));
            high = std::max(high, static_cast<double>(rows[static_cast<size_t>(t * kDim + i)]));
          }
          const double step = (high - low) / top, most = std::max(std::fabs(low), std::fabs(high));
          const auto at = static_cast<size_t>(t * kDim + d);
          ASSERT_LE(std::fabs(static_cast<double>(out[at]) - static_cast<double>(rows[at])),
                    step / 2 + step * top / 2048 + most / 2048 + 1e-6)
              << c.text << " " << t << " " << d;
        }
      }
    }
  }
}

double squares(const std::vector<float>& x) {
  double sum = 0;
  for (const float one : x) sum += static_cast<double>(one) * one;
  return sum;
}

// Before rounding a rotation changes nothing: products of rotated heads are those of the heads, and back is back.
TEST(KvCodecs, RotationsAreOrthogonal) {
  for (const char* text : {"quarot_kv", "turboquant"}) {
    const auto one = codec(text);
    ASSERT_TRUE(one->rotates());
    for (int64_t dim : {1, 6, 32, 48, 80, 128}) {
      const auto q = tile_rows(1, dim, 3), k = tile_rows(1, dim, 4);
      auto turned_q = q, turned_k = k;
      one->rotate(turned_q.data(), dim);
      one->rotate(turned_k.data(), dim);
      double product = 0, turned = 0;
      for (size_t i = 0; i < q.size(); ++i) {
        product += static_cast<double>(q[i]) * k[i];
        turned += static_cast<double>(turned_q[i]) * turned_k[i];
      }
      const double size = std::sqrt(squares(q) * squares(k));
      EXPECT_NEAR(turned, product, 1e-6 * size) << text << " " << dim;
      one->rotate_back(turned_k.data(), dim);
      for (size_t i = 0; i < k.size(); ++i) EXPECT_NEAR(turned_k[i], k[i], 1e-6 * std::sqrt(squares(k)));
    }
    std::vector<float> single(64, 0.0f);  // one large channel is spread over all
    single[17] = 8;
    one->rotate(single.data(), 64);
    for (const float x : single) EXPECT_LT(std::fabs(x), 4);
    EXPECT_NEAR(squares(single), 64, 1e-4);
  }
  EXPECT_FALSE(codec("kivi")->rotates());
}

// Error of rotated, rounded heads, rotated back, as a part of their squares.
double rotated_error(const KvCodec& codec, const std::vector<float>& rows, int64_t dim) {
  const auto tokens = std::ssize(rows) / dim;
  auto turned = rows;
  for (int64_t t = 0; t < tokens; ++t) codec.rotate(turned.data() + t * dim, dim);
  for (float& x : turned) x = f16_to_f32(f32_to_f16(x));
  auto out = stored_and_loaded(codec, KvPart::keys, make_kernel_table(Isa::ref), turned, tokens, dim);
  for (int64_t t = 0; t < tokens; ++t) codec.rotate_back(out.data() + t * dim, dim);
  for (size_t i = 0; i < rows.size(); ++i) out[i] -= rows[i];
  return squares(out) / squares(rows);
}

// Channels that are much larger than others: rounding rotated heads loses less.
TEST(KvCodecs, QuarotsRotationHelpsLargeChannels) {
  auto rows = tile_rows(64, 64, 6);
  for (size_t i = 0; i < rows.size(); ++i)
    if (i % 64 == 5) rows[i] = f16_to_f32(f32_to_f16(rows[i] * 8 + 30));
  for (const char* bits : {"2", "3", "4"}) {
    const auto turned = codec(std::string("quarot_kv:clip=1,bits=") + bits);
    const auto plain = codec(std::string("flexgen_kv:group=64,bits=") + bits);
    EXPECT_LT(1.5 * rotated_error(*turned, rows, 64), rotated_error(*plain, rows, 64)) << bits;
  }
}

// The paper's theorem 1: the mean squared error is 0.117, 0.03 and 0.009 of the squared norm for 2, 3 and 4 bits,
// whatever the vector; with a large channel all of it is nearly one rotated axis, whose 128 coordinates are few.
TEST(KvCodecs, TurboquantsErrorIsThatOfItsCodebook) {
  auto rows = tile_rows(256, 128, 8);
  for (size_t i = 0; i < rows.size(); ++i)
    if (i % 128 == 77) rows[i] = 200;
  const double bounds[] = {0.117, 0.0345, 0.0095};
  for (int bits = 2; bits <= 4; ++bits) {
    const auto one = codec("turboquant:bits=" + std::to_string(bits));
    const double bound = bounds[bits - 2], error = rotated_error(*one, tile_rows(256, 128, 9), 128);
    EXPECT_LT(error, 1.1 * bound) << bits;
    EXPECT_GT(error, 0.8 * bound) << bits;
    EXPECT_LT(rotated_error(*one, rows, 128), 1.5 * bound) << bits;
  }
  // Max, 1960, "Quantizing for Minimum Distortion", of 4 levels, and the outermost of 16.
  const auto code = [](int bits, size_t i) { return whole_codes(bits).codes[i] * whole_codes(bits).step; };
  EXPECT_NEAR(code(2, 0), -1.510, 2e-3);
  EXPECT_NEAR(code(2, 2), 0.4528, 2e-3);
  EXPECT_NEAR(code(4, 15), 2.733, 0.02);
  for (int bits = 2; bits <= 4; ++bits) {
    const auto tiles = codec("turboquant:bits=" + std::to_string(bits))->level_tiles(32, 64);
    for (int i = 0; i < 16; ++i) {
      EXPECT_EQ(tiles->codes[i], std::round(tiles->codes[i]));
      EXPECT_LE(std::fabs(tiles->codes[i]), kMaxCode);
    }
  }
}

// Outliers come back as they are, wherever they are in a vector; what is left has uneven levels over its own range.
TEST(KvCodecs, KvquantKeepsOutliers) {
  constexpr int64_t kTokens = 64, kDim = 64;
  auto rows = tile_rows(kTokens, kDim, 12);
  const auto large = [](int64_t t, int64_t d) { return (t * 7 + d) % kDim == 3; };  // one of each token and channel
  for (int64_t t = 0; t < kTokens; ++t)
    for (int64_t d = 0; d < kDim; ++d)
      if (large(t, d)) rows[static_cast<size_t>(t * kDim + d)] = 500 + static_cast<float>(t);
  for (int bits = 2; bits <= 4; ++bits) {
    const auto one = codec("kvquant:bits=" + std::to_string(bits));
    EXPECT_TRUE(one->before_rope());
    EXPECT_EQ(one->sink_tokens(), 1);
    const auto none = codec("kvquant:outliers=0,bits=" + std::to_string(bits));
    for (KvPart part : {KvPart::keys, KvPart::values}) {
      const auto out = stored_and_loaded(*one, part, make_kernel_table(Isa::ref), rows, kTokens, kDim);
      const auto rough = stored_and_loaded(*none, part, make_kernel_table(Isa::ref), rows, kTokens, kDim);
      double error = 0, other = 0;
      for (int64_t i = 0; i < kTokens * kDim; ++i) {
        const auto at = static_cast<size_t>(i);
        if (large(i / kDim, i % kDim)) {
          ASSERT_EQ(out[at], rows[at]);
          continue;
        }
        // No level is farther from its neighbour than the range over the number of evenly spaced levels, times two.
        const double range = part == KvPart::keys && i % kDim % 7 != 3 ? 1.0 : 20.0;
        ASSERT_LE(std::fabs(out[at] - rows[at]), range / ((1 << bits) - 1)) << bits;
        error += std::pow(static_cast<double>(out[at] - rows[at]), 2);
        other += std::pow(static_cast<double>(rough[at] - rows[at]), 2);
      }
      EXPECT_LT(10 * error, other) << bits;
    }
  }
}

// Tiles of a file may hold any bytes.
TEST(KvCodecs, KvquantKeepsPlacesOfOutliersWithinTheirVectors) {
  constexpr int64_t kTokens = 64, kDim = 48;
  const auto one = codec("kvquant:outliers=2");
  std::vector<uint8_t> tile(static_cast<size_t>(one->tile_bytes(kTokens, kDim)), 0xff);
  for (KvPart part : {KvPart::keys, KvPart::values}) {
    std::vector<uint16_t> halves(static_cast<size_t>(kTokens * kDim) + 4096, 0x5a5a);
    one->load(part, make_kernel_table(Isa::ref), tile.data(), kTokens, kDim, reinterpret_cast<uint8_t*>(halves.data()));
    for (size_t i = static_cast<size_t>(kTokens * kDim); i < halves.size(); ++i) ASSERT_EQ(halves[i], 0x5a5a);
  }
}

TEST(KvCodecs, LargestValuesStayFinite) {
  std::vector<float> rows(32 * 32);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = i % 3 == 0 ? 65504.0f : i % 3 == 1 ? -65504.0f : 65472.0f;
  for (const char* text :
       {"kivi:bits=4", "flexgen_kv", "atom_kv:bits=3", "quarot_kv:clip=1", "turboquant:bits=2", "kvquant:group=32"})
    for (KvPart part : {KvPart::keys, KvPart::values})
      for (float x : stored_and_loaded(*codec(text), part, make_kernel_table(Isa::ref), rows, 32, 32))
        ASSERT_TRUE(std::isfinite(x)) << text;
}

TEST(KvCodecs, Names) {
  EXPECT_EQ(codec("kivi")->text(), "kivi:bits=2,group=32,residual=0");
  EXPECT_EQ(codec("kivi:residual=96,bits=4")->text(), "kivi:bits=4,group=32,residual=96");
  EXPECT_EQ(codec("kivi:bits=2")->bits_per_value(), 3);
  EXPECT_EQ(codec("kivi:bits=4")->bits_per_value(), 5);
  EXPECT_EQ(codec("kivi:bits=4,group=128")->bits_per_value(), 4.25);
  EXPECT_EQ(codec("flexgen_kv")->text(), "flexgen_kv:bits=4,group=64,residual=0");
  EXPECT_EQ(codec("flexgen_kv")->bits_per_value(), 4.5);
  EXPECT_EQ(codec("atom_kv:bits=3")->bits_per_value(), 3.25);
  EXPECT_EQ(codec("quarot_kv:bits=3")->text(), "quarot_kv:bits=3,group=128,clip=0.95,residual=0");
  EXPECT_EQ(codec("turboquant:bits=2,residual=5")->text(), "turboquant:bits=2,residual=5");
  EXPECT_EQ(codec("kvquant")->text(), "kvquant:bits=3,group=64,outliers=1,sink=1,residual=0");
  EXPECT_EQ(refusal("flexgen_kv:group=48"), "KV format flexgen_kv: group: must be 32, 64 or 128, got 48");
  EXPECT_NE(codec("atom_kv")->check(2000).error().message.find("heads have at most 1024 dims, the model has 2000"),
            std::string::npos);
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
