// Norms, RoPE, softmax, activation functions, elementwise arithmetic and row codecs of every table, against
// their definitions in double (or, for codecs and elementwise arithmetic, bit for bit): odd sizes, pointers
// at any offset, in place. Bounds are relative to the largest expected magnitude, at least 1.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "kernel_tables.h"
#include "kernels/kernel_table.h"

namespace millrace {
namespace {

using testing::expect_close;
using testing::random_values;
using testing::same_bits;

constexpr int64_t kSizes[] = {1, 2, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 128, 200, 4097};
constexpr float kGuard = 12345.5f;

// A row at an odd offset in its buffer, with guards on both sides.
struct Row {
  explicit Row(const std::vector<float>& values) : n(static_cast<int64_t>(values.size())) {
    buffer.assign(values.size() + 24, kGuard);
    std::copy(values.begin(), values.end(), buffer.begin() + 3);
  }
  float* data() { return buffer.data() + 3; }
  std::vector<float> values() const { return {buffer.begin() + 3, buffer.begin() + 3 + n}; }
  bool guards_hold() const {
    for (int64_t i = 0; i < static_cast<int64_t>(buffer.size()); ++i) {
      if ((i < 3 || i >= n + 3) && buffer[static_cast<size_t>(i)] != kGuard) return false;
    }
    return true;
  }
  int64_t n;
  std::vector<float> buffer;
};

template <typename Body>
void for_each_size(const Body& body) {
  for (const KernelTable& table : testing::kernel_tables()) {
    for (int64_t n : kSizes) {
      SCOPED_TRACE(isa_name(table.isa) + " n = " + std::to_string(n));
      body(table, n);
    }
  }
}

std::vector<float> map(const std::vector<float>& x, const std::function<double(double)>& f) {
  std::vector<float> y;
  for (float v : x) y.push_back(static_cast<float>(f(v)));
  return y;
}

std::vector<float> scaled(std::vector<float> x, float factor) {
  for (float& v : x) v *= factor;
  return x;
}

double silu(double x) { return x / (1 + std::exp(-x)); }
double gelu_tanh(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double gelu_erf(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }

TEST(Norm, RmsNormEqualsItsDefinition) {
  for_each_size([](const KernelTable& table, int64_t n) {
    for (bool weighted : {false, true}) {
      for (float offset : {0.0f, 1.0f}) {
        auto x = random_values(n, 1);
        auto w = random_values(n, 2);
        double squares = 0;
        for (float v : x) squares += double{v} * v;
        const double factor = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
        std::vector<float> expected;
        for (int64_t i = 0; i < n; ++i) {
          expected.push_back(static_cast<float>(x[i] * factor * (weighted ? double{w[i]} + offset : 1)));
        }
        Row in(x), weights(w), out(std::vector<float>(n, 0));
        table.rms_norm(in.data(), weighted ? weights.data() : nullptr, offset, 1e-5f, n, out.data());
        expect_close(out.values(), expected, 2e-6);
        table.rms_norm(in.data(), weighted ? weights.data() : nullptr, offset, 1e-5f, n, in.data());
        EXPECT_TRUE(same_bits(in.values(), out.values())) << "in place";
        EXPECT_TRUE(in.guards_hold() && out.guards_hold());
      }
    }
  });
}

TEST(Norm, LayerNormEqualsItsDefinition) {
  for_each_size([](const KernelTable& table, int64_t n) {
    for (int parts = 0; parts < 4; ++parts) {
      auto x = random_values(n, 3);
      for (float& v : x) v += 5;  // a mean worth subtracting
      auto w = random_values(n, 4);
      auto b = random_values(n, 5);
      double total = 0, squares = 0;
      for (float v : x) total += v;
      const double mean = total / static_cast<double>(n);
      for (float v : x) squares += (v - mean) * (v - mean);
      const double factor = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-2);
      std::vector<float> expected;
      for (int64_t i = 0; i < n; ++i) {
        expected.push_back(
            static_cast<float>((x[i] - mean) * factor * (parts & 1 ? w[i] : 1) + (parts & 2 ? b[i] : 0)));
      }
      Row in(x), weights(w), bias(b), out(std::vector<float>(n, 0));
      const float* wp = parts & 1 ? weights.data() : nullptr;
      const float* bp = parts & 2 ? bias.data() : nullptr;
      table.layer_norm(in.data(), wp, bp, 1e-2f, n, out.data());
      expect_close(out.values(), expected, 6e-6);
      table.layer_norm(in.data(), wp, bp, 1e-2f, n, in.data());
      EXPECT_TRUE(same_bits(in.values(), out.values())) << "in place";
      EXPECT_TRUE(in.guards_hold() && out.guards_hold());
    }
  });
}

TEST(Norm, ARowOfZerosStaysZero) {
  for_each_size([](const KernelTable& table, int64_t n) {
    Row x(std::vector<float>(n, 0));
    table.rms_norm(x.data(), nullptr, 0, 1e-6f, n, x.data());
    for (float v : x.values()) EXPECT_EQ(v, 0);
  });
}

TEST(Rope, RotatesBothKindsOfPairsAndNothingElse) {
  for (const KernelTable& table : testing::kernel_tables()) {
    for (int64_t pairs : {1, 3, 8, 15, 16, 17, 20, 32, 33, 64, 128}) {
      for (bool half : {false, true}) {
        for (int64_t extra : {0, 5}) {
          SCOPED_TRACE(isa_name(table.isa) + " pairs = " + std::to_string(pairs));
          auto head = random_values(2 * pairs + extra, 6);
          std::vector<float> cos(pairs), sin(pairs), expected = head;
          for (int64_t i = 0; i < pairs; ++i) {
            const double angle = 77.0 * static_cast<double>(i + 1);
            cos[i] = static_cast<float>(std::cos(angle));
            sin[i] = static_cast<float>(std::sin(angle));
            const int64_t a = half ? i : 2 * i, b = half ? i + pairs : 2 * i + 1;
            expected[a] = static_cast<float>(double{head[a]} * cos[i] - double{head[b]} * sin[i]);
            expected[b] = static_cast<float>(double{head[a]} * sin[i] + double{head[b]} * cos[i]);
          }
          Row row(head), c(cos), s(sin);
          table.rope(row.data(), c.data(), s.data(), 2 * pairs, half);
          expect_close(row.values(), expected, 2e-7);
          const auto after = row.values();
          for (int64_t i = 2 * pairs; i < 2 * pairs + extra; ++i) EXPECT_EQ(after[i], head[i]);
          EXPECT_TRUE(row.guards_hold());
        }
      }
    }
  }
}

TEST(Rope, AngleZeroIsTheIdentity) {
  for (const KernelTable& table : testing::kernel_tables()) {
    auto head = random_values(80, 7);
    std::vector<float> cos(40, 1), sin(40, 0);
    for (bool half : {false, true}) {
      Row row(head);
      table.rope(row.data(), cos.data(), sin.data(), 80, half);
      EXPECT_EQ(row.values(), head);
    }
  }
}

// Rows of f16 may differ from exact arithmetic by what rounding their sums in f32 first does.
TEST(Rope, RowsAreRotatedByTheSumOfTwoAngles) {
  for (const KernelTable& table : testing::kernel_tables()) {
    for (int64_t pairs : {1, 5, 8, 16, 19, 32, 40, 64}) {
      for (const bool half : {false, true}) {
        for (const bool back : {false, true}) {
          SCOPED_TRACE(isa_name(table.isa) + " pairs = " + std::to_string(pairs));
          const int64_t rows = 5, dim = 2 * pairs + 3;
          const auto values = random_values(rows * dim, 9);
          std::vector<uint16_t> halves;
          for (float x : values) halves.push_back(f32_to_f16(x));
          std::vector<double> expected(halves.size());
          for (size_t i = 0; i < halves.size(); ++i) expected[i] = double{f16_to_f32(halves[i])};
          std::vector<float> block(2 * pairs), turns(2 * rows * pairs);
          for (int64_t i = 0; i < pairs; ++i) {
            const double of_block = 70.0 * static_cast<double>(i + 1);
            block[i] = static_cast<float>(std::cos(of_block));
            block[pairs + i] = static_cast<float>(std::sin(of_block));
            for (int64_t t = 0; t < rows; ++t) {
              const double of_row = static_cast<double>(t) / static_cast<double>(i + 1);
              turns[2 * t * pairs + i] = static_cast<float>(std::cos(of_row));
              turns[(2 * t + 1) * pairs + i] = static_cast<float>(std::sin(of_row));
              const double angle = (back ? -1 : 1) * (of_block + of_row);
              double& a = expected[t * dim + (half ? i : 2 * i)];
              double& b = expected[t * dim + (half ? i + pairs : 2 * i + 1)];
              const double turned = a * std::cos(angle) - b * std::sin(angle);
              b = a * std::sin(angle) + b * std::cos(angle);
              a = turned;
            }
          }
          halves.push_back(0x5a5a);  // not written
          table.rotate_rows({.rows = reinterpret_cast<uint8_t*>(halves.data()),
                             .count = rows,
                             .dim = dim,
                             .rotated = 2 * pairs,
                             .half = half,
                             .back = back,
                             .block_turn = block.data(),
                             .row_turns = turns.data()});
          EXPECT_EQ(halves.back(), 0x5a5a);
          for (size_t i = 0; i < expected.size(); ++i)
            ASSERT_NEAR(double{f16_to_f32(halves[i])}, expected[i],
                        0.0005 * std::max(0.001, std::fabs(expected[i])) + 1e-6)
                << i;
        }
      }
    }
  }
}

TEST(Softmax, EqualsItsDefinition) {
  for_each_size([](const KernelTable& table, int64_t n) {
    for (float spread : {0.01f, 4.0f, 60.0f}) {
      auto x = scaled(random_values(n, 8), spread);
      double max = -INFINITY, sum = 0;
      for (float v : x) max = std::max(max, double{v});
      for (float v : x) sum += std::exp(v - max);
      Row row(x);
      table.softmax(row.data(), n);
      const auto y = row.values();
      for (int64_t i = 0; i < n; ++i) {
        const double expected = std::exp(x[i] - max) / sum;
        const double rounding = (max - x[i]) * 0x1.0p-24;  // of x - max in single precision
        EXPECT_NEAR(y[i], expected, (2e-6 + rounding) * expected + 1e-38) << i;
      }
      EXPECT_TRUE(row.guards_hold());
    }
  });
}

TEST(Softmax, MaskedValuesAreExactlyZero) {
  static constexpr float kMasked = -std::numeric_limits<float>::infinity();
  for_each_size([](const KernelTable& table, int64_t n) {
    Row all(std::vector<float>(n, kMasked));
    table.softmax(all.data(), n);
    for (float v : all.values()) EXPECT_EQ(v, 0);
    std::vector<float> x(n, kMasked);
    x[n / 2] = -1e30f;
    Row one(x);
    table.softmax(one.data(), n);
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(one.values()[i], i == n / 2 ? 1.0f : 0.0f);
  });
}

TEST(ExpSum, EqualsItsDefinition) {
  for_each_size([](const KernelTable& table, int64_t n) {
    for (float spread : {0.0f, 0.01f, 4.0f, 300.0f}) {
      auto x = scaled(random_values(n, 9), spread);
      double max = -INFINITY, sum = 0;
      for (float v : x) max = std::max(max, double{v});
      for (float v : x) sum += std::exp(v - max);
      Row row(x);
      EXPECT_NEAR(table.exp_sum(row.data(), max, n), sum, (1e-12 + 1e-15 * static_cast<double>(n)) * sum) << spread;
      EXPECT_EQ(row.values(), x);
    }
  });
}

TEST(ExpSum, EachTermIsExact) {
  for (const KernelTable& table : testing::kernel_tables())
    for (float x = -640; x <= 0; x += 0.37f) {
      const double expected = std::exp(double{x});
      EXPECT_NEAR(table.exp_sum(&x, 0, 1), expected, 1e-12 * expected) << isa_name(table.isa) << " " << x;
    }
}

TEST(ExpSum, NanAddsNothingAndInfinityCountsAsTheLargestFloat) {
  const float kInf = std::numeric_limits<float>::infinity(), kMax = std::numeric_limits<float>::max();
  for (const KernelTable& table : testing::kernel_tables()) {
    std::vector<float> x = {1, NAN, -kInf, 1, -1e30f, NAN, 1, 1, NAN, 1};
    EXPECT_NEAR(table.exp_sum(x.data(), 1, std::ssize(x)), 5, 1e-11) << isa_name(table.isa);
    x = {kInf, 0, kMax};
    EXPECT_NEAR(table.exp_sum(x.data(), kMax, std::ssize(x)), 2, 1e-11) << isa_name(table.isa);
    EXPECT_EQ(table.exp_sum(x.data(), kMax, 0), 0);
  }
}

TEST(CoarseExpSum, IsNearItsDefinition) {
  for_each_size([](const KernelTable& table, int64_t n) {
    for (float spread : {0.0f, 0.01f, 4.0f, 300.0f})
      for (float offset : {0.0f, 17.3f, -1000.7f}) {
        auto x = scaled(random_values(n, 9), spread);
        for (float& v : x) v += offset;
        const float max = *std::max_element(x.begin(), x.end());
        double sum = 0;
        for (float v : x) sum += std::exp(double{v} - double{max});
        Row row(x);
        EXPECT_NEAR(table.exp_sum_coarse(row.data(), max, n), sum, 1e-6 * sum) << spread << " " << offset;
        EXPECT_EQ(row.values(), x);
      }
  });
}

// A rounding of x - shift would be far above the bound: 1e-3 of -40000 - 60.
TEST(CoarseExpSum, EachTermIsNearItsValue) {
  for (const KernelTable& table : testing::kernel_tables())
    for (const float shift : {0.0f, 3.7f, -40000.3f})
      for (float below = -85; below <= 0; below += 0.037f) {
        const float x = shift + below;
        const double expected = std::exp(double{x} - double{shift});
        if (x > shift || x - shift < -85) continue;
        EXPECT_NEAR(table.exp_sum_coarse(&x, shift, 1), expected, 4e-7 * expected + 16 * std::exp(-86.0))
            << isa_name(table.isa) << " " << x;
      }
}

TEST(CoarseExpSum, NanAddsNothingAndInfinityCountsAsTheLargestFloat) {
  const float kInf = std::numeric_limits<float>::infinity(), kMax = std::numeric_limits<float>::max();
  for (const KernelTable& table : testing::kernel_tables()) {
    std::vector<float> x = {1, NAN, -kInf, 1, -1e30f, NAN, 1, 1, NAN, 1};
    EXPECT_NEAR(table.exp_sum_coarse(x.data(), 1, std::ssize(x)), 5, 1e-5) << isa_name(table.isa);
    x = {kInf, 0, kMax};
    EXPECT_NEAR(table.exp_sum_coarse(x.data(), kMax, std::ssize(x)), 2, 1e-5) << isa_name(table.isa);
    EXPECT_EQ(table.exp_sum_coarse(x.data(), kMax, 0), 0);
  }
}

TEST(SelectFrom, KeepsThoseFromTheLeastOnInOrder) {
  const float kInf = std::numeric_limits<float>::infinity(), kMax = std::numeric_limits<float>::max();
  for_each_size([&](const KernelTable& table, int64_t n) {
    auto x = random_values(n, 11);
    for (size_t i = 0; i < x.size(); i += 7) x[i] = i % 2 == 0 ? NAN : kInf;
    for (size_t i = 3; i < x.size(); i += 11) x[i] = -kInf;
    Row row(x);
    for (const float least : {-kMax, -0.5f, 0.0f, 0.9f, kMax}) {
      std::vector<Candidate> expected;
      for (int64_t i = 0; i < n; ++i)
        if (x[static_cast<size_t>(i)] >= least)
          expected.push_back({std::min(x[static_cast<size_t>(i)], kMax), static_cast<TokenId>(100 + i)});
      std::vector<Candidate> out(static_cast<size_t>(n) + 17, {-7, -7});
      const int64_t kept = table.select_from(row.data(), n, least, 100, out.data());
      ASSERT_EQ(kept, std::ssize(expected)) << isa_name(table.isa) << " " << n << " " << least;
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(out[i].logit, expected[i].logit);
        EXPECT_EQ(out[i].token, expected[i].token);
      }
      EXPECT_EQ(out.back().token, -7) << "writes beyond what it may";
    }
  });
}

// Relative error over the whole range, for positive and negative inputs alike.
void expect_relative(const std::vector<float>& x, const std::vector<float>& actual, double (*f)(double), double bound) {
  ASSERT_EQ(x.size(), actual.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = f(x[i]);
    EXPECT_NEAR(actual[i], expected, bound * std::fabs(expected) + 1e-30) << "at " << x[i];
  }
}

std::vector<float> range(float low, float high, int64_t n) {
  std::vector<float> x;
  for (int64_t i = 0; i <= n; ++i) x.push_back(low + (high - low) * static_cast<float>(i) / static_cast<float>(n));
  return x;
}

TEST(ActivationFunctions, HoldTheirRelativeErrorOverTheRange) {
  struct Case {
    void (*KernelTable::*function)(float*, int64_t);
    double (*definition)(double);
    float low;  // where the result is tiny, the argument's own rounding dominates
    double bound;
  };
  const Case cases[] = {{&KernelTable::gelu_tanh, gelu_tanh, -3, 2e-6}, {&KernelTable::gelu_erf, gelu_erf, -3, 2e-6}};
  for (const KernelTable& table : testing::kernel_tables()) {
    for (const Case& c : cases) {
      auto x = range(c.low, 20, 5000);
      Row row(x);
      (table.*c.function)(row.data(), row.n);
      expect_relative(x, row.values(), c.definition, c.bound);
      auto wide = range(-30, c.low, 3000);
      Row low(wide);
      (table.*c.function)(low.data(), low.n);
      const auto y = low.values();
      for (size_t i = 0; i < wide.size(); ++i) EXPECT_NEAR(y[i], c.definition(wide[i]), 1e-7) << wide[i];
    }
    auto x = range(-80, 80, 5000);
    Row gate(x), up(std::vector<float>(x.size(), 1)), y(x);
    table.silu_mul(gate.data(), up.data(), y.data(), y.n);
    expect_relative(x, y.values(), silu, 1e-6);
  }
}

TEST(ActivationFunctions, GatedFormsMultiplyAndMayWriteOverTheirInputs) {
  using Gated = void (*)(const float*, const float*, float*, int64_t);
  for_each_size([](const KernelTable& table, int64_t n) {
    const std::pair<Gated, double (*)(double)> cases[] = {
        {table.silu_mul, silu}, {table.gelu_tanh_mul, gelu_tanh}, {table.gelu_erf_mul, gelu_erf}};
    for (const auto& [function, definition] : cases) {
      auto g = scaled(random_values(n, 9), 3);
      auto u = random_values(n, 10);
      auto expected = map(g, definition);
      for (int64_t i = 0; i < n; ++i) expected[i] = static_cast<float>(definition(g[i]) * u[i]);
      Row gate(g), up(u), out(std::vector<float>(n, 0));
      function(gate.data(), up.data(), out.data(), n);
      expect_close(out.values(), expected, 2e-6);
      function(gate.data(), up.data(), up.data(), n);
      EXPECT_TRUE(same_bits(up.values(), out.values()));
      Row second(u);
      function(gate.data(), second.data(), gate.data(), n);
      EXPECT_TRUE(same_bits(gate.values(), out.values()));
      EXPECT_TRUE(gate.guards_hold() && up.guards_hold() && out.guards_hold());
    }
  });
}

TEST(ActivationFunctions, AValueDoesNotDependOnItsPlaceInTheRow) {
  for (const KernelTable& table : testing::kernel_tables()) {
    auto x = scaled(random_values(100, 11), 4);
    for (auto function : {table.gelu_tanh, table.gelu_erf}) {
      Row whole(x);
      function(whole.data(), 100);
      for (int64_t i = 0; i < 100; ++i) {
        float one = x[i];
        function(&one, 1);
        EXPECT_EQ(one, whole.values()[i]) << isa_name(table.isa) << " " << i;
      }
    }
  }
}

TEST(ActivationFunctions, ReluSoftcapAndExtremes) {
  for_each_size([](const KernelTable& table, int64_t n) {
    auto x = scaled(random_values(n, 12), 40);
    Row relu(x), capped(x), tight(x);
    table.relu(relu.data(), n);
    EXPECT_EQ(relu.values(), map(x, [](double v) { return v < 0 ? 0 : v; }));
    table.softcap(capped.data(), 30.0f, n);
    expect_close(capped.values(), map(x, [](double v) { return 30 * std::tanh(v / 30); }), 1e-6);
    table.softcap(tight.data(), 1000.0f, n);
    expect_close(tight.values(), map(x, [](double v) { return 1000 * std::tanh(v / 1000); }), 1e-6);
    EXPECT_TRUE(relu.guards_hold() && capped.guards_hold() && tight.guards_hold());
  });
  for (const KernelTable& table : testing::kernel_tables()) {
    for (auto function : {table.gelu_tanh, table.gelu_erf}) {
      std::vector<float> x = {0, 1e30f, -1e30f, 100, -100, 1e-30f};
      function(x.data(), static_cast<int64_t>(x.size()));
      EXPECT_EQ(x[0], 0);
      EXPECT_EQ(x[1], 1e30f);
      EXPECT_EQ(x[2], 0);
      EXPECT_EQ(x[3], 100);
      EXPECT_EQ(x[4], 0);
      EXPECT_NEAR(x[5] / 1e-30f, 0.5, 1e-6);
    }
  }
}

TEST(Elementwise, IsTheSameBitsOnEveryTable) {
  for_each_size([](const KernelTable& table, int64_t n) {
    auto x = random_values(n, 13), y = random_values(n, 14);
    std::vector<float> sum = y, fused = y, product = x;
    for (int64_t i = 0; i < n; ++i) {
      sum[i] = x[i] + y[i];
      fused[i] = std::fma(x[i], 0.37f, y[i]);
      product[i] = x[i] * 1.7f;
    }
    Row in(x), a(y), b(y), c(x);
    table.add(in.data(), a.data(), n);
    table.add_scaled(in.data(), 0.37f, b.data(), n);
    table.scale(c.data(), 1.7f, n);
    EXPECT_TRUE(same_bits(a.values(), sum));
    EXPECT_TRUE(same_bits(b.values(), fused));
    EXPECT_TRUE(same_bits(c.values(), product));
    EXPECT_TRUE(a.guards_hold() && b.guards_hold() && c.guards_hold());
  });
}

// Edge cases for a codec: normal, tiny, huge, ties, zeros of both signs, infinities and NaN.
std::vector<float> trying_values(int64_t n, uint64_t seed) {
  auto x = random_values(n, seed);
  const float special[] = {0.0f,     -0.0f,    1e-8f,    -6e-8f,  3e-5f,  65504.0f, 65519.0f, 65520.0f, 1e30f,
                           -3.4e38f, INFINITY, NAN,      -NAN,    0.125f, 1.5e-7f,  2049.0f,  2051.0f,  1.00390625f,
                           1e-40f,   6.1e-5f,  -65536.f, 3.0e38f, 1e9f,   2e9f,     0.5f,     1.5f,     2.5f};
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t r = static_cast<uint64_t>(philox_uniform(seed, 5, static_cast<uint64_t>(i)) * 200);
    if (r < std::size(special)) x[i] = special[r];
    if (r > 150) x[i] *= std::ldexp(1.0f, static_cast<int>(r - 150) * 4 - 100);
  }
  return x;
}

TEST(RowCodec, EncodesAndDecodesTheBitsOfTheFormat) {
  for (const KernelTable& table : testing::kernel_tables()) {
    for (const RowCodec& codec : table.codecs) {
      const Format& format = *codec.format;
      for (int64_t blocks : {1, 2, 7, 31, 33, 63, 65, 4097}) {
        if (format.block_values > 1 && blocks > 100) continue;
        SCOPED_TRACE(isa_name(table.isa) + " " + std::string(format.name) + " " + std::to_string(blocks));
        const int64_t n = blocks * format.block_values;
        const int64_t bytes = format.row_bytes(n);
        Row x(trying_values(n, static_cast<uint64_t>(blocks)));
        std::vector<uint8_t> expected(bytes + 9, 0x5a), actual(bytes + 9, 0x5a);
        if (codec.encode != format.encode) {
          format.encode(x.data(), expected.data() + 1, n);
          codec.encode(x.data(), actual.data() + 1, n);
          EXPECT_EQ(actual, expected);
        }
        for (int64_t i = 0; i < bytes; ++i) {  // any bytes at all
          expected[i + 1] = static_cast<uint8_t>(philox_uniform(3, 9, static_cast<uint64_t>(i)) * 256);
        }
        Row wide(std::vector<float>(n, 0)), fast(std::vector<float>(n, 0));
        format.decode(expected.data() + 1, wide.data(), n);
        codec.decode(expected.data() + 1, fast.data(), n);
        EXPECT_TRUE(same_bits(wide.values(), fast.values()));
        EXPECT_TRUE(fast.guards_hold());
      }
    }
  }
}

TEST(RowCodec, EverySixteenBitPatternWidensAlike) {
  std::vector<uint8_t> all(65536 * 2);
  for (int i = 0; i < 65536; ++i) {
    all[2 * i] = static_cast<uint8_t>(i);
    all[2 * i + 1] = static_cast<uint8_t>(i >> 8);
  }
  for (const KernelTable& table : testing::kernel_tables()) {
    for (const char* name : {"f16", "bf16"}) {
      const RowCodec* codec = table.find_codec(find_format(name));
      ASSERT_NE(codec, nullptr);
      std::vector<float> expected(65536), actual(65536);
      codec->format->decode(all.data(), expected.data(), 65536);
      codec->decode(all.data(), actual.data(), 65536);
      EXPECT_TRUE(same_bits(actual, expected)) << isa_name(table.isa) << " " << name;
    }
  }
}

TEST(KernelTable, EveryTableHasEveryOperation) {
  for (const KernelTable& t : testing::kernel_tables()) {
    EXPECT_TRUE(t.attention_merge && t.rms_norm && t.layer_norm && t.rope && t.rotate_rows && t.softmax && t.exp_sum &&
                t.exp_sum_coarse && t.select_from && t.silu_mul && t.gelu_tanh_mul && t.gelu_erf_mul && t.gelu_tanh &&
                t.gelu_erf && t.relu && t.softcap && t.add && t.add_scaled && t.scale)
        << isa_name(t.isa);
    for (const Format* format : formats().members()) EXPECT_NE(t.find_codec(format), nullptr) << format->name;
  }
}

}  // namespace
}  // namespace millrace
