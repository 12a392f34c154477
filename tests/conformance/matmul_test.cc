// Matmul: every registered format x every kernel table of this machine x odd sizes.
//   - against a sum in double of decoded weights times decoded activations (stated bounds below);
//   - quantized formats: every table equals ref bit for bit;
//   - the same bits for one token or many, any split of the rows, any number of threads.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/activation.h"
#include "kernels/kernel_table.h"
#include "kernels/linear.h"
#include "tensor/half.h"

namespace millrace {
namespace {

// Relative to the sum of |w x|: rounding of f32 sums of up to a few thousand terms.
constexpr double kFloatBound = 1e-5;
constexpr double kQuantBound = 2e-6;
constexpr float kCanary = 12345.5f;

const std::vector<KernelTable>& tables() {
  static const std::vector<KernelTable> all = [] {
    std::vector<KernelTable> built;
    for (Isa isa : {Isa::ref, Isa::avx2, Isa::avx512}) {
      if (isa <= detect_isa()) built.push_back(make_kernel_table(isa));
    }
    return built;
  }();
  return all;
}

std::vector<float> random_values(int64_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = normal(engine);
  return values;
}

struct Case {
  Weight weight;
  std::vector<uint8_t> stored;
  std::vector<float> decoded;  // [rows, cols]
};

Case make_case(const Format& format, int64_t rows, int64_t cols, uint32_t seed) {
  Case c;
  std::vector<float> values = random_values(rows * cols, seed);
  int64_t row_bytes = format.row_bytes(cols);
  c.stored.resize(static_cast<size_t>(rows * row_bytes));
  c.decoded.resize(values.size());
  for (int64_t r = 0; r < rows; ++r) {
    format.encode(values.data() + r * cols, c.stored.data() + r * row_bytes, cols);
    format.decode(c.stored.data() + r * row_bytes, c.decoded.data() + r * cols, cols);
  }
  c.weight.name = std::string(format.name);
  c.weight.format = &format;
  c.weight.rows = rows;
  c.weight.cols = cols;
  c.weight.data = c.stored.data();
  return c;
}

AlignedBuffer scratch_for(Activation kind, int64_t tokens, int64_t cols) {
  auto buffer = AlignedBuffer::allocate(tokens * activation_row_bytes(kind, cols), "scratch");
  EXPECT_TRUE(buffer.ok());
  return std::move(*buffer);
}

// What an encoded activation row stands for.
std::vector<float> decode_activation(Activation kind, const uint8_t* row, int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    if (kind == Activation::f32) {
      out[i] = reinterpret_cast<const float*>(row)[i];
    } else if (kind == Activation::bf16) {
      out[i] = bf16_to_f32(reinterpret_cast<const uint16_t*>(row)[i]);
    } else {
      const uint8_t* record = row + i / 32 * kQ8GroupBytes;
      const float unit = *reinterpret_cast<const float*>(row + q8_unit_at(n)), scale = *reinterpret_cast<const float*>(record + kQ8ScaleAt);
      out[i] = unit * scale * static_cast<float>(reinterpret_cast<const int8_t*>(record)[i % 32]);
    }
  }
  return out;
}

// y of every token, [tokens, rows], with a canary column checked and removed.
std::vector<float> multiply(const Weight& weight, const KernelTable& table, ThreadPool& pool,
                            const std::vector<float>& x, int64_t tokens) {
  Activation kind = weight.format->activation;
  AlignedBuffer scratch = scratch_for(kind, tokens, weight.cols);
  ActivationRows rows =
      encode_activations(table, pool, kind, x.data(), weight.cols, tokens, weight.cols, scratch.data());
  int64_t stride = weight.rows + 1;
  std::vector<float> padded(static_cast<size_t>(tokens * stride), kCanary);
  linear(pool, weight, rows, padded.data(), stride);
  std::vector<float> y;
  for (int64_t t = 0; t < tokens; ++t) {
    y.insert(y.end(), padded.begin() + t * stride, padded.begin() + t * stride + weight.rows);
    EXPECT_EQ(padded[static_cast<size_t>(t * stride + weight.rows)], kCanary) << weight.name << " wrote past its rows";
  }
  return y;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Shape {
  int64_t rows, cols;
};

// Columns in units of the format's block where they are not whole blocks anyway.
std::vector<Shape> shapes_for(const Format& format) {
  if (format.block_values == 1) {
    return {{1, 1}, {3, 5}, {17, 33}, {16, 64}, {33, 127}, {8, 128}, {50, 129}, {65, 260}, {31, 1000}};
  }
  int64_t b = format.block_values;
  return {{1, b}, {3, 3 * b}, {16, 2 * b}, {17, 5 * b}, {33, b}, {50, 4 * b}, {65, 7 * b}};
}

std::string where(const Format& format, const KernelTable& table, const Shape& shape) {
  return std::string(format.name) + " " + std::string(isa_name(table.isa)) + " " + std::to_string(shape.rows) + "x" +
         std::to_string(shape.cols);
}

TEST(MatmulConformance, EveryFormatHasAKernelInEveryTable) {
  for (const KernelTable& table : tables()) {
    for (const Format* format : formats()) {
      EXPECT_NE(table.find_matmul(format), nullptr) << format->name << " " << isa_name(table.isa);
    }
  }
}

TEST(MatmulConformance, MatchesTheDefinition) {
  ThreadPool pool(1);
  constexpr int64_t kTokens = 5;
  for (const Format* format : formats()) {
    double bound = is_int8(format->activation) ? kQuantBound : kFloatBound;
    for (const Shape& shape : shapes_for(*format)) {
      Case c = make_case(*format, shape.rows, shape.cols, 7);
      std::vector<float> x = random_values(kTokens * shape.cols, 8);
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

TEST(MatmulConformance, TokensTogetherEqualEachAlone) {
  ThreadPool pool(1);
  constexpr int64_t kMost = 37;  // past two token tiles of every kernel
  for (const Format* format : formats()) {
    Shape shape{51, format->block_values == 1 ? 200 : 3 * format->block_values};
    Case c = make_case(*format, shape.rows, shape.cols, 17);
    std::vector<float> x = random_values(kMost * shape.cols, 18);
    for (const KernelTable& table : tables()) {
      ASSERT_TRUE(pack_weight(c.weight, table, pool).ok());
      std::vector<float> alone;
      for (int64_t t = 0; t < kMost; ++t) {
        std::vector<float> one(x.begin() + t * shape.cols, x.begin() + (t + 1) * shape.cols);
        std::vector<float> y = multiply(c.weight, table, pool, one, 1);
        alone.insert(alone.end(), y.begin(), y.end());
      }
      for (int64_t tokens = 2; tokens <= kMost; tokens += tokens < 17 ? 1 : 5) {
        std::vector<float> first(x.begin(), x.begin() + tokens * shape.cols);
        std::vector<float> expected(alone.begin(), alone.begin() + tokens * shape.rows);
        EXPECT_TRUE(same_bits(multiply(c.weight, table, pool, first, tokens), expected))
            << where(*format, table, shape) << " tokens " << tokens;
      }
    }
  }
}

// Kernels may store whole, aligned vectors of a long prompt's outputs in another way than odd ones.
TEST(MatmulConformance, ManyTokensIntoAlignedRows) {
  ThreadPool pool(2);
  constexpr int64_t kTokens = 133;
  for (const Format* format : formats()) {
    Shape shape{80, format->block_values == 1 ? 64 : format->block_values};  // two panels of 32 and a part of one
    Case c = make_case(*format, shape.rows, shape.cols, 67);
    std::vector<float> x = random_values(kTokens * shape.cols, 68);
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

// One token, two and three: kernels take other numbers of panels together for each, and fewer at the end. Products are large
// enough for threads to be used.
TEST(MatmulConformance, ThreadsAndRowSplitsKeepBits) {
  for (const Format* format : formats()) {
    const int64_t cols = 352 / format->block_values * format->block_values;
    for (const auto& [rows, tokens] : {std::pair<int64_t, int64_t>{300, 1}, {219, 1}, {100, 1}, {219, 2}, {300, 3}}) {
      const Shape shape{rows, cols};
      Case c = make_case(*format, shape.rows, shape.cols, 27);
      std::vector<float> x = random_values(tokens * shape.cols, 28);
      for (const KernelTable& table : tables()) {
        const std::string what = where(*format, table, shape) + " tokens " + std::to_string(tokens);
        ThreadPool one(1);
        ASSERT_TRUE(pack_weight(c.weight, table, one).ok());
        std::vector<float> expected = multiply(c.weight, table, one, x, tokens);
        for (int threads : {2, 3}) {
          ThreadPool pool(threads);
          ASSERT_TRUE(pack_weight(c.weight, table, pool).ok());
          EXPECT_TRUE(same_bits(multiply(c.weight, table, pool, x, tokens), expected)) << what << " threads " << threads;
        }
        // Every row tile on its own.
        AlignedBuffer scratch = scratch_for(format->activation, tokens, shape.cols);
        ActivationRows encoded = encode_activations(table, one, format->activation, x.data(), shape.cols, tokens, shape.cols,
                                                    scratch.data());
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

// A NaN code of FP8 is a NaN in that row and in no other.
TEST(MatmulConformance, F8NanCodes) {
  const Format* format = find_format("f8_e4m3");
  if (format == nullptr) GTEST_SKIP() << "f8_e4m3 is not registered";
  ThreadPool pool(1);
  Case c = make_case(*format, 20, 200, 77);
  c.stored[static_cast<size_t>(7 * 200 + 150)] = 0xff;
  for (const KernelTable& table : tables()) {
    ASSERT_TRUE(pack_weight(c.weight, table, pool).ok());
    std::vector<float> y = multiply(c.weight, table, pool, random_values(200, 78), 1);
    for (int r = 0; r < 20; ++r) EXPECT_EQ(std::isnan(y[static_cast<size_t>(r)]), r == 7) << isa_name(table.isa);
  }
}

// Any bytes are a legal matrix: tables must agree on extreme scales, sub-scales and levels too.
TEST(MatmulConformance, RandomStoredBytesAgreeWithRef) {
  ThreadPool pool(1);
  std::mt19937 engine(5);
  for (const Format* format : formats()) {
    if (!is_int8(format->activation)) continue;
    Shape shape{37, 3 * format->block_values};
    Case c = make_case(*format, shape.rows, shape.cols, 37);
    for (uint8_t& byte : c.stored) byte = static_cast<uint8_t>(engine());
    for (int64_t tokens : {1, 4, 7, 12}) {  // as many as make a kernel go another way
      std::vector<float> x = random_values(tokens * shape.cols, 38);
      std::vector<float> ref_y;
      for (const KernelTable& table : tables()) {
        ASSERT_TRUE(pack_weight(c.weight, table, pool).ok());
        std::vector<float> y = multiply(c.weight, table, pool, x, tokens);
        for (float& v : y) {
          if (std::isnan(v)) v = 0;  // scales may be NaN; their payloads are nobody's business
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
        std::vector<float> x = random_values(n, static_cast<uint32_t>(n + variant));
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

// Half a step from every value: q8 takes the step of a group's own largest value; q8_shift at most twice as large a one, and
// none below 2^-12 of the row's.
TEST(MatmulConformance, ActivationsAreRoundedByHalfAStep) {
  constexpr int64_t kGroups = 20;
  std::vector<float> x = random_values(kGroups * 32, 77);
  for (int64_t i = 0; i < kGroups * 32; ++i) x[i] = std::ldexp(x[i], static_cast<int>(-(i / 32)));  // from 1 to 2^-19
  float row_largest = 0;
  for (float v : x) row_largest = std::max(row_largest, std::abs(v));
  for (Activation kind : {Activation::q8, Activation::q8_shift}) {
    for (const KernelTable& table : tables()) {
      AlignedBuffer row = scratch_for(kind, 1, kGroups * 32);
      table.encode_activation(kind, x.data(), kGroups * 32, row.data());
      std::vector<float> rounded = decode_activation(kind, row.data(), kGroups * 32);
      for (int64_t g = 0; g < kGroups; ++g) {
        float largest = 0;
        for (int64_t i = g * 32; i < g * 32 + 32; ++i) largest = std::max(largest, std::abs(x[i]));
        float step = largest / 127;
        if (kind == Activation::q8_shift) step = std::max(2 * step, row_largest / 127 / 4096);
        for (int64_t i = g * 32; i < g * 32 + 32; ++i) {
          EXPECT_NEAR(rounded[i], x[i], 0.5001f * step) << isa_name(table.isa) << " group " << g << " value " << i;
        }
      }
    }
  }
}

TEST(MatmulConformance, NonFiniteInputShowsInTheOutput) {
  ThreadPool pool(1);
  for (const Format* format : formats()) {
    Shape shape{5, format->block_values == 1 ? 64 : 2 * format->block_values};
    Case c = make_case(*format, shape.rows, shape.cols, 47);
    std::vector<float> x = random_values(shape.cols, 48);
    x[3] = std::numeric_limits<float>::quiet_NaN();
    for (const KernelTable& table : tables()) {
      ASSERT_TRUE(pack_weight(c.weight, table, pool).ok());
      for (float v : multiply(c.weight, table, pool, x, 1)) {
        EXPECT_TRUE(std::isnan(v)) << where(*format, table, shape);
      }
    }
  }
}

TEST(MatmulConformance, BlockScales) {
  const Format* format = find_format("f8_e4m3");
  if (format == nullptr) GTEST_SKIP() << "f8_e4m3 is not registered";
  ThreadPool pool(2);
  struct Blocks {
    int64_t rows, cols;
  };
  Shape shape{150, 300};
  for (Blocks blocks : {Blocks{128, 128}, Blocks{150, 300}, Blocks{1, 300}, Blocks{64, 256}}) {
    Case c = make_case(*format, shape.rows, shape.cols, 57);
    int64_t down = (shape.rows + blocks.rows - 1) / blocks.rows, across = (shape.cols + blocks.cols - 1) / blocks.cols;
    c.weight.scales = {random_values(down * across, 58), blocks.rows, blocks.cols};
    std::vector<float> x = random_values(2 * shape.cols, 59);
    for (const KernelTable& table : tables()) {
      auto packed = pack_weight(c.weight, table, pool);
      ASSERT_TRUE(packed.ok()) << packed.error().message;
      std::vector<float> y = multiply(c.weight, table, pool, x, 2);
      for (int64_t t = 0; t < 2; ++t) {
        for (int64_t r = 0; r < shape.rows; ++r) {
          double sum = 0, magnitude = 0;
          for (int64_t k = 0; k < shape.cols; ++k) {
            double scale = c.weight.scales.values[r / blocks.rows * across + k / blocks.cols];
            double product = scale * c.decoded[r * shape.cols + k] * x[t * shape.cols + k];
            sum += product;
            magnitude += std::abs(product);
          }
          ASSERT_NEAR(y[t * shape.rows + r], sum, kFloatBound * magnitude) << where(*format, table, shape);
        }
      }
    }
  }
}

TEST(MatmulConformance, BadWeightsAreRefused) {
  ThreadPool pool(1);
  const KernelTable& table = tables().front();
  Case c = make_case(*find_format("q8_0"), 2, 64, 67);
  c.weight.cols = 63;
  EXPECT_EQ(pack_weight(c.weight, table, pool).error().kind, ErrorKind::user);
  c.weight.cols = int64_t{1} << 62;
  EXPECT_EQ(pack_weight(c.weight, table, pool).error().kind, ErrorKind::user);
  c.weight.cols = 64;
  c.weight.scales = {{1.0f}, 2, 64};
  EXPECT_EQ(pack_weight(c.weight, table, pool).error().kind, ErrorKind::unsupported);
  KernelTable empty;
  c.weight.scales = {};
  EXPECT_EQ(pack_weight(c.weight, empty, pool).error().kind, ErrorKind::unsupported);
  if (const Format* f8 = find_format("f8_e4m3")) {
    Case scaled = make_case(*f8, 4, 256, 68);
    scaled.weight.scales = {{1.0f, 1.0f}, 4, 256};
    EXPECT_EQ(pack_weight(scaled.weight, table, pool).error().kind, ErrorKind::corrupt);
    scaled.weight.scales = {{1, 1, 1, 1}, 4, 64};
    EXPECT_EQ(pack_weight(scaled.weight, table, pool).error().kind, ErrorKind::unsupported);
  }
}

}  // namespace
}  // namespace millrace
