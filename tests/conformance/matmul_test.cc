// Matmul: every registered format x every kernel table of this machine x odd sizes.
//   - against a sum in double of decoded weights times decoded activations (bounds: matmul_case.h);
//   - quantized formats: every table equals ref bit for bit;
//   - the same bits for one token or many, any split of the rows, any number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "conformance/matmul_case.h"

namespace millrace {
namespace {

using namespace testing;  // matmul_case.h

bool has_tiles(const KernelTable& table) {
  return table.isa.has(Feature::amx_int8) || table.isa.has(Feature::amx_bf16);
}

// Columns in units of the format's block, where they are not already whole blocks.
std::vector<Shape> shapes_for(const Format& format) {
  if (format.block_values == 1) {
    return {{1, 1}, {3, 5}, {17, 33}, {16, 64}, {33, 127}, {8, 128}, {50, 129}, {65, 260}, {31, 1000}};
  }
  int64_t b = format.block_values;
  return {{1, b}, {3, 3 * b}, {16, 2 * b}, {17, 5 * b}, {33, b}, {50, 4 * b}, {65, 7 * b}};
}

TEST(MatmulConformance, EveryFormatHasAKernelInEveryTable) {
  for (const KernelTable& table : tables()) {
    for (const Format* format : formats().members()) {
      EXPECT_NE(table.find_matmul(format), nullptr) << format->name << " " << isa_name(table.isa);
    }
  }
}

TEST(MatmulConformance, MatchesTheDefinition) {
  ThreadPool pool(1);
  constexpr int64_t kTokens = 5;
  for (const Format* format : formats().members()) {
    double bound = is_int8(format->activation) ? kQuantBound : kFloatBound;
    for (const Shape& shape : shapes_for(*format)) {
      Case c = make_case(*format, shape.rows, shape.cols, 7);
      std::vector<float> x = normal_values(kTokens * shape.cols, 8);
      std::vector<float> ref_y;
      for (const KernelTable& table : tables()) {
        auto packed = pack_weight(c.weight, table, pool);
        ASSERT_TRUE(packed.ok()) << packed.error().message;
        std::vector<float> y = multiply(c.weight, table, pool, x, kTokens);
        AlignedBuffer row = scratch_for(format->activation, 1, shape.cols);
        for (int64_t t = 0; t < kTokens; ++t) {
          table.encode_activation(format->activation, x.data() + t * shape.cols, shape.cols, row.data());
          std::vector<float> rounded = decode_activation(format->activation, row.data(), shape.cols);
          for (int64_t r = 0; r < shape.rows; ++r) {
            double sum = 0, magnitude = 0;
            for (int64_t k = 0; k < shape.cols; ++k) {
              double product = double{c.decoded[r * shape.cols + k]} * double{rounded[k]};
              sum += product;
              magnitude += std::abs(product);
            }
            // Formats with a minimum sum scale * level and minimum apart: their magnitudes count, not the difference's.
            ASSERT_NEAR(y[t * shape.rows + r], sum, bound * (magnitude + std::abs(sum)) + 1e-30)
                << where(*format, table, shape) << " row " << r << " token " << t;
          }
        }
        if (table.isa == Isa::ref) {
          ref_y = y;
        } else if (is_int8(format->activation)) {
          EXPECT_TRUE(same_bits(y, ref_y)) << where(*format, table, shape) << ": bits differ from ref";
        }
      }
    }
  }
}

TEST(MatmulConformance, ABatchEqualsEachTokenAlone) {
  ThreadPool pool(1);
  constexpr int64_t kMax = 37;  // past two token tiles of every kernel
  for (const Format* format : formats().members()) {
    Shape shape{51, format->block_values == 1 ? 200 : 3 * format->block_values};
    Case c = make_case(*format, shape.rows, shape.cols, 17);
    std::vector<float> x = normal_values(kMax * shape.cols, 18);
    for (const KernelTable& table : tables()) {
      ASSERT_TRUE(pack_weight(c.weight, table, pool).ok());
      std::vector<float> alone;
      for (int64_t t = 0; t < kMax; ++t) {
        std::vector<float> one(x.begin() + t * shape.cols, x.begin() + (t + 1) * shape.cols);
        std::vector<float> y = multiply(c.weight, table, pool, one, 1);
        alone.insert(alone.end(), y.begin(), y.end());
      }
      for (int64_t tokens = 2; tokens <= kMax; tokens += tokens < 17 ? 1 : 5) {
        std::vector<float> first(x.begin(), x.begin() + tokens * shape.cols);
        std::vector<float> expected(alone.begin(), alone.begin() + tokens * shape.rows);
        EXPECT_TRUE(same_bits(multiply(c.weight, table, pool, first, tokens), expected))
            << where(*format, table, shape) << " tokens " << tokens;
      }
    }
  }
}

// Kernels may store whole, aligned vectors of a long prompt's outputs differently from unaligned ones.
TEST(MatmulConformance, ManyTokensIntoAlignedRows) {
  ThreadPool pool(2);
  constexpr int64_t kTokens = 133;
  for (const Format* format : formats().members()) {
    Shape shape{80, format->block_values == 1 ? 64 : format->block_values};  // two panels of 32 and a part of one
    Case c = make_case(*format, shape.rows, shape.cols, 67);
    std::vector<float> x = normal_values(kTokens * shape.cols, 68);
    for (const KernelTable& table : tables()) {
      ASSERT_TRUE(pack_weight(c.weight, table, pool).ok());
      std::vector<float> expected = multiply(c.weight, table, pool, x, kTokens);  // rows of odd length
      AlignedBuffer scratch = scratch_for(format->activation, kTokens, shape.cols);
      ActivationRows rows = encode_activations(table, pool, format->activation, x.data(), shape.cols, kTokens,
                                               shape.cols, scratch.data());
      auto aligned = AlignedBuffer::allocate(kTokens * shape.rows * 4, "y");
      ASSERT_TRUE(aligned.ok());
      linear(pool, c.weight, rows, aligned->as<float>(), shape.rows);
      std::vector<float> y(aligned->as<float>(), aligned->as<float>() + kTokens * shape.rows);
      EXPECT_TRUE(same_bits(y, expected)) << where(*format, table, shape);
    }
  }
}

// Long rows and prompts are processed in blocks, a token alone is not.
TEST(MatmulConformance, BlocksOfColumnsAndTokensKeepBits) {
  ThreadPool pool(1);
  constexpr int64_t kTokens = 100, kCols = 2304;  // nine blocks of 256 values
  for (const Format* format : formats().members()) {
    Case c = make_case(*format, 40, kCols, 87);
    const std::vector<float> x = normal_values(kTokens * kCols, 88);
    for (const KernelTable& table : tables()) {
      if (table.isa == Isa::ref) continue;
      ASSERT_TRUE(pack_weight(c.weight, table, pool).ok());
      const std::vector<float> together = multiply(c.weight, table, pool, x, kTokens);
      // Tiles have borders within the prompt: there, every token is compared.
      for (int64_t t = 0; t < kTokens; t += has_tiles(table) || t == 98 ? 1 : 49) {
        const std::vector<float> alone =
            multiply(c.weight, table, pool, {x.begin() + t * kCols, x.begin() + (t + 1) * kCols}, 1);
        const std::vector<float> row(together.begin() + t * 40, together.begin() + (t + 1) * 40);
        EXPECT_TRUE(same_bits(alone, row)) << where(*format, table, {40, kCols}) << " token " << t;
      }
    }
  }
}

// For one, two and three tokens kernels process different numbers of panels at once, and fewer at the end; tiles take
// more tokens together. Products are large enough for threads to be used.
// label(arm-once): slow on a simulated processor; the one with all features runs it with the tables of the other, too
TEST(MatmulConformance, ThreadsAndRowSplitsKeepBits) {
  for (const Format* format : formats().members()) {
    const int64_t cols = 520 / format->block_values * format->block_values;
    for (const auto& [rows, tokens] :
         {std::pair<int64_t, int64_t>{300, 1}, {219, 1}, {100, 1}, {219, 2}, {300, 3}, {300, 64}, {219, 100}}) {
      const Shape shape{rows, cols};
      Case c = make_case(*format, shape.rows, shape.cols, 27);
      std::vector<float> x = normal_values(tokens * shape.cols, 28);
      for (const KernelTable& table : tables()) {
        if (tokens > 3 && !has_tiles(table)) continue;  // the others have no more ways to go
        const std::string what = where(*format, table, shape) + " tokens " + std::to_string(tokens);
        ThreadPool one(1);
        ASSERT_TRUE(pack_weight(c.weight, table, one).ok());
        std::vector<float> expected = multiply(c.weight, table, one, x, tokens);
        for (int threads : {2, 3}) {
          ThreadPool pool(threads);
          ASSERT_TRUE(pack_weight(c.weight, table, pool).ok());
          EXPECT_TRUE(same_bits(multiply(c.weight, table, pool, x, tokens), expected))
              << what << " threads " << threads;
        }
        // Every row tile on its own.
        AlignedBuffer scratch = scratch_for(format->activation, tokens, shape.cols);
        ActivationRows encoded = encode_activations(table, one, format->activation, x.data(), shape.cols, tokens,
                                                    shape.cols, scratch.data());
        std::vector<float> y(expected.size(), kCanary);
        for (int64_t row = 0; row < shape.rows; row += c.weight.kernel->row_tile) {
          c.weight.kernel->run({.weights = c.weight.packed.data(),
                                .rows = shape.rows,
                                .cols = shape.cols,
                                .row_begin = row,
                                .row_end = std::min(shape.rows, row + c.weight.kernel->row_tile),
                                .x = encoded.data,
                                .x_stride = encoded.stride,
                                .tokens = tokens,
                                .y = y.data(),
                                .y_stride = shape.rows});
        }
        EXPECT_TRUE(same_bits(y, expected)) << what << " by row tiles";
      }
    }
  }
}

// A matrix that is not packed yet is multiplied in slices, of several row tiles and of a part of one.
// label(arm-once): slow on a simulated processor; the one with all features runs it with the tables of the other, too
TEST(MatmulConformance, SlicesOfStoredRowsKeepBits) {
  ThreadPool pool(2);
  for (const Format* format : formats().members()) {
    std::vector<std::pair<Shape, int64_t>> cases;
    for (const Shape& shape : shapes_for(*format)) cases.push_back({shape, 3});
    cases.push_back({{611, 1024}, 1});
    cases.push_back({{611, 768}, 8});  // as many tokens as kernels of stored rows take, more at once than they multiply
    cases.push_back({{300, 1024}, 70});
    for (const auto& [shape, tokens] : cases) {
      Case c = make_case(*format, shape.rows, shape.cols, 41);
      const std::vector<float> x = normal_values(tokens * shape.cols, 42);
      for (const KernelTable& table : tables()) {
        ASSERT_TRUE(pack_weight(c.weight, table, pool).ok());
        ASSERT_TRUE(multiplies_stored(c.weight));
        const std::vector<float> expected = multiply(c.weight, table, pool, x, tokens);
        std::memset(c.weight.packed.data(), 0xab, static_cast<size_t>(c.weight.packed.bytes()));
        PackingState state;
        c.weight.packing = &state;
        EXPECT_TRUE(same_bits(multiply(c.weight, table, pool, x, tokens), expected))
            << where(*format, table, shape) << " tokens " << tokens;
        EXPECT_FALSE(state.damaged);
        c.weight.packing = nullptr;
      }
    }
  }
}

// A scale of the whole matrix is a factor of each output, in the same place of every table.
TEST(MatmulConformance, ScalesOfWholeMatrices) {
  ThreadPool pool(1);
  constexpr float kScale = 0.37f;
  for (const Format* format : formats().members()) {
    const Shape shape{70, 4 * std::max(format->block_values, 32)};
    Case c = make_case(*format, shape.rows, shape.cols, 45);
    c.weight.scales = {{kScale}, shape.rows, shape.cols};
    if (format->matrix_limit == 0) {
      if (format->name != "f8_e4m3") {
        EXPECT_FALSE(pack_weight(c.weight, tables().front(), pool).ok()) << format->name;
      }
      continue;
    }
    for (int64_t tokens : {1, 3, 40}) {
      const std::vector<float> x = normal_values(tokens * shape.cols, 46);
      std::vector<float> of_ref;
      for (const KernelTable& table : tables()) {
        c.weight.scales.values = {1.0f};
        ASSERT_TRUE(pack_weight(c.weight, table, pool).ok());
        const std::vector<float> without = multiply(c.weight, table, pool, x, tokens);
        c.weight.scales.values = {kScale};
        ASSERT_TRUE(pack_weight(c.weight, table, pool).ok());
        const std::vector<float> y = multiply(c.weight, table, pool, x, tokens);
        for (size_t i = 0; i < y.size(); ++i)
          ASSERT_NEAR(y[i], kScale * without[i], 1e-6 * std::abs(y[i])) << where(*format, table, shape);
        if (table.isa == Isa::ref) of_ref = y;
        EXPECT_TRUE(same_bits(y, of_ref)) << where(*format, table, shape);
        PackingState state;  // in slices
        c.weight.packing = &state;
        ASSERT_TRUE(multiplies_stored(c.weight));
        EXPECT_TRUE(same_bits(multiply(c.weight, table, pool, x, tokens), of_ref)) << where(*format, table, shape);
        c.weight.packing = nullptr;
      }
    }
    c.weight.scales = {{1, 2}, shape.rows / 2, shape.cols};
    EXPECT_FALSE(pack_weight(c.weight, tables().front(), pool).ok());
  }
}

// Rows 3 and 40 are multiplied as they are stored where a kernel can, row 69 in a slice.
TEST(MatmulConformance, SlicesFindDamagedRows) {
  ThreadPool pool(1);
  for (const char* name : {"q4_0", "q8_0", "q4_k"}) {
    const Format* format = find_format(name);
    for (const KernelTable& table : tables()) {
      for (int64_t damaged : {-1, 3, 40, 69}) {
        Case c = make_case(*format, 70, 256, 43);
        if (damaged >= 0) c.stored[static_cast<size_t>(damaged * format->row_bytes(256) + 1)] = 0x7c;  // infinite scale
        ASSERT_TRUE(pack_weight(c.weight, table, pool).ok());
        for (int64_t tokens : {1, 9}) {
          PackingState state;
          c.weight.packing = &state;
          multiply(c.weight, table, pool, normal_values(tokens * 256, 44), tokens);
          EXPECT_EQ(state.damaged, damaged >= 0) << where(*format, table, {70, 256}) << " row " << damaged;
          c.weight.packing = nullptr;
        }
      }
    }
  }
}

// Skipped, and counted as such, where the tests above had no tiles to test.
TEST(MatmulConformance, TilesEqualRef) {
  const auto table = std::ranges::find_if(tables(), has_tiles);
  if (table == tables().end())
    GTEST_SKIP() << "no AMX: " << (amx_refusal().empty() ? "this processor has none" : amx_refusal());
  const KernelTable vectors = make_kernel_table(Isa::avx512), ref = make_kernel_table(Isa::ref);
  ThreadPool pool(1);
  constexpr int64_t kTokens = 64;  // for fewer, some formats run without tiles
  int64_t of_tiles = 0;
  for (const Format* format : formats().members()) {
    if (table->find_matmul(format)->run == vectors.find_matmul(format)->run) continue;
    ++of_tiles;
    const Shape shape{70, 2 * std::max<int64_t>(format->block_values, 32)};
    Case c = make_case(*format, shape.rows, shape.cols, 97);
    const std::vector<float> x = normal_values(kTokens * shape.cols, 98);
    ASSERT_TRUE(pack_weight(c.weight, ref, pool).ok());
    const std::vector<float> expected = multiply(c.weight, ref, pool, x, kTokens);
    ASSERT_TRUE(pack_weight(c.weight, *table, pool).ok());
    const std::vector<float> y = multiply(c.weight, *table, pool, x, kTokens);
    if (is_int8(format->activation)) {
      EXPECT_TRUE(same_bits(y, expected)) << where(*format, *table, shape);
      continue;
    }
    for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], expected[i], 1e-3) << where(*format, *table, shape);
  }
  EXPECT_GT(of_tiles, 0);
}

// A NaN code of FP8 gives NaN in that row only.
// A kernel with two ways takes the one that a table names, and gives the same bits.
TEST(MatmulConformance, TilesAndVectorsGiveTheSameBits) {
  ThreadPool pool(1);
  for (const KernelTable& table : tables()) {
    int64_t both = 0;
    for (const Format* format : formats().members()) {
      if (table.find_matmul(format)->tiles_from == 0) continue;
      ++both;
      const Shape shape{67, 5 * format->block_values};
      Case c = make_case(*format, shape.rows, shape.cols, 31);
      ASSERT_TRUE(pack_weight(c.weight, table, pool).ok());
      const ShapeTable tiles({{format, shape.rows, shape.cols, 1}});
      const ShapeTable vectors({{format, shape.rows, shape.cols, ShapeTable::kNever}});
      for (int64_t tokens : {1, 2, 15, 16, 17, 33, 70}) {
        const std::vector<float> x = normal_values(tokens * shape.cols, 32);
        EXPECT_TRUE(same_bits(multiply(c.weight, table, pool, x, tokens, &tiles),
                              multiply(c.weight, table, pool, x, tokens, &vectors)))
            << where(*format, table, shape) << " tokens " << tokens;
      }
    }
    if (has_tiles(table)) {
      EXPECT_GT(both, 5) << isa_name(table.isa);
    }
  }
}

TEST(MatmulConformance, F8NanCodes) {
  const Format* format = find_format("f8_e4m3");
  if (format == nullptr) GTEST_SKIP() << "f8_e4m3 is not registered";
  ThreadPool pool(1);
  Case c = make_case(*format, 20, 200, 77);
  c.stored[static_cast<size_t>(7 * 200 + 150)] = 0xff;
  for (const KernelTable& table : tables()) {
    ASSERT_TRUE(pack_weight(c.weight, table, pool).ok());
    std::vector<float> y = multiply(c.weight, table, pool, normal_values(200, 78), 1);
    for (int r = 0; r < 20; ++r) EXPECT_EQ(std::isnan(y[static_cast<size_t>(r)]), r == 7) << isa_name(table.isa);
  }
}

// Any bytes are a legal matrix: tables must agree on extreme scales, sub-scales and levels too.
TEST(MatmulConformance, RandomStoredBytesAgreeWithRef) {
  ThreadPool pool(1);
  std::mt19937 engine(5);
  for (const Format* format : formats().members()) {
    if (!is_int8(format->activation)) continue;
    Shape shape{37, 3 * format->block_values};
    Case c = make_case(*format, shape.rows, shape.cols, 37);
    for (uint8_t& byte : c.stored) byte = static_cast<uint8_t>(engine());
    for (int64_t tokens : {1, 4, 7, 12, 50}) {  // each takes another path in some kernel
      std::vector<float> x = normal_values(tokens * shape.cols, 38);
      std::vector<float> ref_y;
      for (const KernelTable& table : tables()) {
        ASSERT_TRUE(pack_weight(c.weight, table, pool).ok());
        std::vector<float> y = multiply(c.weight, table, pool, x, tokens);
        for (float& v : y) {
          if (std::isnan(v)) v = 0;  // scales may be NaN; NaN payloads are not compared
        }
        if (table.isa == Isa::ref) ref_y = y;
        EXPECT_TRUE(same_bits(y, ref_y)) << where(*format, table, shape) << " tokens " << tokens;
      }
    }
  }
}

TEST(MatmulConformance, ActivationsAreTheSameBitsEverywhere) {
  constexpr int64_t kSizes[] = {1, 16, 31, 32, 33, 64, 100, 129, 512};
  const float kSpecial[] = {0.0f, -0.0f, 1e-40f, 1e-31f, 3e38f, 0.5f, -127.0f, 126.5f, 2.5f, 1e30f};
  for (Activation kind : kActivations) {
    for (int64_t n : kSizes) {
      for (int variant = 0; variant < 4; ++variant) {
        std::vector<float> x = normal_values(n, static_cast<uint32_t>(n + variant));
        if (variant == 1) {
          for (int64_t i = 0; i < n; ++i) x[i] = kSpecial[i % std::size(kSpecial)];
        }
        if (variant == 2) x[n / 2] = std::numeric_limits<float>::infinity();
        if (variant == 3) x[n - 1] = std::numeric_limits<float>::quiet_NaN();
        std::vector<uint8_t> expected;
        for (const KernelTable& table : tables()) {
          AlignedBuffer row = scratch_for(kind, 1, n);
          int64_t bytes = activation_row_bytes(kind, n);
          table.encode_activation(kind, x.data(), n, row.data());
          std::vector<uint8_t> got(row.data(), row.data() + bytes);
          if (table.isa == Isa::ref) expected = got;
          EXPECT_EQ(got, expected) << "kind " << static_cast<int>(kind) << " n " << n << " variant " << variant << " "
                                   << isa_name(table.isa);
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace
