// Each quantizer of weights and activations is what its paper defines.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compress/quantizers/weight_activation_test.h"
#include "tensor/half.h"

namespace millrace {
namespace {

using namespace testing;

TEST(SmoothQuant, DividesTheOutliersAsThePaperSays) {
  ThreadPool pool(1);
  const auto statistics = calibrated(pool);
  const PassMatrix plain = matrix_in("f32"), matrix = passed("smoothquant:alpha=0.3,format=f32", "f32", pool);
  for (int64_t c = 0; c < kTestCols; ++c) {
    double w = 0, smoothed = 0, x = 0;
    for (int64_t r = 0; r < kTestRows; ++r) {
      w = std::max(w, std::fabs(double{plain.values[static_cast<size_t>(r * kTestCols + c)]}));
      smoothed = std::max(smoothed, std::fabs(double{matrix.values[static_cast<size_t>(r * kTestCols + c)]}));
    }
    for (double end : {statistics.least[static_cast<size_t>(c)], statistics.most[static_cast<size_t>(c)]})
      x = std::max(x, std::fabs(end));
    const double s = std::pow(x, 0.3) / std::pow(w, 0.7);
    EXPECT_NEAR(matrix.parts.input.scale[static_cast<size_t>(c)], 1 / s, 1e-5 / s);
    EXPECT_NEAR(smoothed, w * s, 1e-5 * w * s);
  }
}

TEST(LlmInt8, KeepsTheOutlierColumns) {
  ThreadPool pool(2);
  const auto statistics = calibrated(pool);
  const PassMatrix plain = matrix_in("q8_0");
  PassMatrix matrix = passed("llm_int8:threshold=8", "q8_0", pool);
  std::vector<int32_t> want;
  for (int64_t c = 0; c < kTestCols; ++c)
    if (statistics.most[static_cast<size_t>(c)] >= 8 || statistics.least[static_cast<size_t>(c)] <= -8)
      want.push_back(static_cast<int32_t>(c));
  EXPECT_EQ(want, (std::vector<int32_t>{7, 57, 107}));
  EXPECT_EQ(matrix.parts.columns, want);
  std::vector<float> row(static_cast<size_t>(kTestCols));
  for (int64_t r = 0; r < kTestRows; ++r) {
    matrix.decode_row(r, row.data());
    float most = 0;
    for (int64_t c = 0; c < kTestCols; ++c)
      if (c % 50 != 7) most = std::max(most, std::fabs(plain.values[static_cast<size_t>(r * kTestCols + c)]));
    for (int64_t c = 0; c < kTestCols; ++c) {
      const float w = plain.values[static_cast<size_t>(r * kTestCols + c)];
      if (c % 50 != 7)
        EXPECT_NEAR(row[static_cast<size_t>(c)], w, most / 254 * 1.1);  // one scale for the row
      else
        EXPECT_EQ(row[static_cast<size_t>(c)], 0);
    }
    for (size_t i = 0; i < want.size(); ++i) {
      const float w = plain.values[static_cast<size_t>(r * kTestCols + want[i])];
      EXPECT_NEAR(matrix.parts.column_weights[static_cast<size_t>(r) * want.size() + i], w, std::fabs(w) * 0x1p-11f);
    }
  }
  // An outlier leaves the others' rounding alone.
  std::vector<float> x = held_out(), larger = x;
  for (int64_t i = 7; i < std::ssize(x); i += kTestCols) larger[static_cast<size_t>(i)] *= 1000;
  const auto rounded = [&](const std::vector<float>& from) {
    std::vector<float> scratch(kTestCols), out(kTestCols);
    change_input(matrix.parts.input, from.data(), kTestCols, scratch.data(), out.data());
    round_inputs(matrix.parts.input.rounding, out.data());
    return out;
  };
  EXPECT_EQ(rounded(x), rounded(larger));
}

// Levels between the ends of a group, by the paper's formula.
TEST(FlexGenInt4, RoundsBetweenTheEndsOfAGroup) {
  ThreadPool pool(2);
  const PassMatrix plain = matrix_in("q4_1");
  const PassMatrix matrix = passed("flexgen_int4", "q4_1", pool);
  EXPECT_TRUE(matrix.parts.empty());
  std::vector<float> row(static_cast<size_t>(kTestCols));
  for (int64_t r = 0; r < kTestRows; ++r) {
    matrix.decode_row(r, row.data());
    for (int64_t g = 0; g < kTestCols; g += 64) {
      const float* w = plain.values.data() + r * kTestCols + g;
      const auto [least, most] = std::minmax_element(w, w + 64);
      const double step = (double{*most} - *least) / 15;
      std::set<float> levels(row.begin() + g, row.begin() + g + 64);
      EXPECT_LE(levels.size(), 16u);
      for (int64_t i = 0; i < 64; ++i) {
        const double want = *least + std::nearbyint((w[i] - *least) / step) * step;
        const double found = row[static_cast<size_t>(g + i)];
        EXPECT_LT(std::min(std::fabs(found - want), std::fabs(std::fabs(found - want) - step)), 0.02 * step);
        EXPECT_LT(std::fabs(found - w[i]), 0.52 * step);
      }
    }
  }
}

TEST(ZeroQuant, GivesAGroupOneScale) {
  ThreadPool pool(2);
  for (const char* format : {"q8_0", "q4_0", "q4_1", "q5_0", "q5_1"}) {
    const PassMatrix plain = matrix_in(format);
    const PassMatrix matrix = passed(fmt::format("zeroquant:format={},group=64", format), format, pool);
    const int scale_bytes = plain.format->name.ends_with('1') ? 4 : 2;
    for (int64_t block = 0; block < kTestRows * kTestCols / 32; block += 2)
      EXPECT_TRUE(std::equal(matrix.encoded.begin() + block * plain.format->block_bytes,
                             matrix.encoded.begin() + block * plain.format->block_bytes + scale_bytes,
                             matrix.encoded.begin() + (block + 1) * plain.format->block_bytes));
    // With one block a group it is the format's own rounding, up to ties.
    PassMatrix own = matrix_in(format),
               blocks = passed(fmt::format("zeroquant:format={},group=32", format), format, pool);
    encode_rest(own);
    std::vector<float> a(static_cast<size_t>(kTestCols)), b(a);
    for (int64_t r = 0; r < kTestRows; ++r) {
      own.decode_row(r, a.data());
      blocks.decode_row(r, b.data());
      double plainly = 0, found = 0;
      for (int64_t c = 0; c < kTestCols; ++c) {
        const float w = plain.values[static_cast<size_t>(r * kTestCols + c)];
        plainly += std::pow(double{a[static_cast<size_t>(c)]} - w, 2);
        found += std::pow(double{b[static_cast<size_t>(c)]} - w, 2);
      }
      EXPECT_LE(found, plainly * 1.0001) << format;
    }
  }
}

// A pair of full rank puts back everything.
TEST(ZeroQuantLorc, TakesTheLargestSingularVectors) {
  ThreadPool pool(2);
  const PassMatrix plain = matrix_in("q4_0");
  std::vector<double> left;
  for (int rank : {1, 8, 24, 48}) {
    const PassMatrix matrix = passed(fmt::format("zeroquant_lorc:rank={}", rank), "q4_0", pool);
    std::vector<float> values(plain.values.size());
    for (int64_t r = 0; r < kTestRows; ++r) matrix.decode_row(r, values.data() + r * kTestCols);
    apply_parts(matrix, values, pool);
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) sum += std::pow(double{values[i]} - plain.values[i], 2);
    left.push_back(sum);
  }
  EXPECT_LT(left[1], 0.8 * left[0]);
  EXPECT_LT(left[2], 0.5 * left[1]);
  EXPECT_LT(left[3], 1e-4 * left[0]);
}

TEST(OutlierSuppressionPlus, MovesInputsToTheMiddle) {
  ThreadPool pool(2);
  const auto statistics = calibrated(pool);
  const PassMatrix plain = matrix_in("q8_0"), matrix = passed("outlier_suppression_plus", "q8_0", pool);
  const InputChange& change = matrix.parts.input;
  double narrowest = INFINITY;  // the threshold: no scaled channel reaches further
  for (size_t c = 0; c < static_cast<size_t>(kTestCols); ++c) {
    EXPECT_NEAR(change.shift[c], (statistics.most[c] + statistics.least[c]) / 2, 1e-5);
    EXPECT_LE(change.scale[c], 1);
    const double reach = (statistics.most[c] - change.shift[c]) * change.scale[c];
    if (change.scale[c] < 1) narrowest = std::min(narrowest, reach);
  }
  EXPECT_GT(change.shift[57], 30);
  for (size_t c = 0; c < static_cast<size_t>(kTestCols); ++c)
    EXPECT_LE((statistics.most[c] - change.shift[c]) * change.scale[c], narrowest * 1.0001);
  for (int64_t r = 0; r < kTestRows; ++r) {
    double bias = 0;
    for (int64_t c = 0; c < kTestCols; ++c)
      bias += double{plain.values[static_cast<size_t>(r * kTestCols + c)]} * change.shift[static_cast<size_t>(c)];
    EXPECT_NEAR(matrix.parts.bias[static_cast<size_t>(r)], bias, 1e-4);
  }
}

TEST(Rptq, PutsChannelsOfSimilarRangesTogether) {
  ThreadPool pool(1);
  const auto statistics = calibrated(pool);
  const PassMatrix matrix = passed("rptq:clusters=5", "q4_0", pool);
  const InputChange& change = matrix.parts.input;
  EXPECT_EQ(std::set<int32_t>(change.order.begin(), change.order.end()).size(), static_cast<size_t>(kTestCols));
  // Clusters are a fixed point of k-means: no channel is nearer to the middle of another one.
  std::vector<std::pair<double, double>> middles;
  size_t first = 0;
  for (const InputSegment& segment : change.rounding) {
    EXPECT_EQ(segment.group, segment.columns);
    std::pair<double, double> sum;
    for (int32_t i = 0; i < segment.columns; ++i) {
      const auto c = static_cast<size_t>(change.order[first + static_cast<size_t>(i)]);
      sum.first += statistics.least[c] / segment.columns;
      sum.second += statistics.most[c] / segment.columns;
    }
    middles.push_back(sum);
    first += static_cast<size_t>(segment.columns);
  }
  EXPECT_EQ(first, static_cast<size_t>(kTestCols));
  EXPECT_GE(middles.size(), 3u);
  const auto distance = [&](size_t c, size_t k) {
    return std::hypot(statistics.least[c] - middles[k].first, statistics.most[c] - middles[k].second);
  };
  first = 0;
  for (size_t k = 0; k < middles.size(); ++k)
    for (int32_t i = 0; i < change.rounding[k].columns; ++i, ++first)
      for (size_t other = 0; other < middles.size(); ++other)
        EXPECT_LE(distance(static_cast<size_t>(change.order[first]), k),
                  distance(static_cast<size_t>(change.order[first]), other) + 1e-6);
}

TEST(Atom, TakesTheLargestInputs) {
  ThreadPool pool(1);
  const auto statistics = calibrated(pool);
  const PassMatrix matrix = passed("atom", "q4_0", pool);
  ASSERT_EQ(matrix.parts.columns.size(), 32u);
  double least = INFINITY, most = 0;
  for (int32_t c = 0; c < kTestCols; ++c) {
    const bool taken = std::ranges::binary_search(matrix.parts.columns, c);
    double& end = taken ? least : most;
    end = taken ? std::min(least, statistics.squares[static_cast<size_t>(c)])
                : std::max(most, statistics.squares[static_cast<size_t>(c)]);
    EXPECT_EQ(matrix.parts.input.scale[static_cast<size_t>(c)], taken ? 0 : 1);
  }
  EXPECT_GE(least, most);
}

TEST(LlmFp4, ScalesArePowersOfTwo) {
  ThreadPool pool(2);
  const PassMatrix matrix = passed("llm_fp4:shift=2", "mxfp4", pool);
  std::set<float> scales(matrix.parts.input.scale.begin(), matrix.parts.input.scale.end());
  for (float scale : scales) EXPECT_TRUE(scale == 1 || scale == 2 || scale == 4) << scale;
  EXPECT_EQ(matrix.parts.input.scale[57], 1);  // the largest channel
  EXPECT_GT(scales.size(), 1u);
}

// A plain search through all pairs of the table finds none that is nearer.
TEST(Olive, TakesTheNearestPair) {
  ThreadPool pool(2);
  PassMatrix matrix = matrix_in("q8_0");
  for (size_t i = 11; i < matrix.values.size(); i += 97) matrix.values[i] *= 9;
  const std::vector<float> plain = matrix.values;
  ASSERT_EQ(pass_of("olive")->apply(matrix, {}, pool)->action, "quantized");
  const Codebook& book = matrix.codebook;
  std::vector<float> row(static_cast<size_t>(kTestCols));
  std::vector<double> errors;
  for (int64_t r = 0; r < kTestRows; ++r) {
    matrix.decode_row(r, row.data());
    const double scale = matrix.parts.output.scale.at(static_cast<size_t>(r));
    double& error = errors.emplace_back();
    for (int64_t c = 0; c < kTestCols; c += 2) {
      const float* w = plain.data() + r * kTestCols + c;
      const auto distance = [&](float a, float b) {
        return std::pow(scale * a - w[0], 2) + std::pow(scale * b - w[1], 2);
      };
      const double found = distance(row[static_cast<size_t>(c)], row[static_cast<size_t>(c + 1)]);
      for (size_t i = 0; i < 253; ++i)
        EXPECT_LE(found,
                  1.0001 * distance(f16_to_f32(book.entries[2 * i]), f16_to_f32(book.entries[2 * i + 1])) + 1e-9);
      error += found;
    }
  }
  // The best of many scales for each row, without pairs.
  double all = 0, all_without = 0;
  for (size_t r = 0; r < errors.size(); ++r) {
    double best = INFINITY;
    for (double scale = 0.001; scale < 0.3; scale *= 1.02) {
      double sum = 0;
      for (size_t c = 0; c < static_cast<size_t>(kTestCols); ++c) {
        const double w = plain[r * kTestCols + c];
        sum += std::pow(w - scale * std::clamp(std::nearbyint(w / scale), -7.0, 7.0), 2);
      }
      best = std::min(best, sum);
    }
    EXPECT_LT(errors[r], 1.1 * best) << r;
    all += errors[r];
    all_without += best;
  }
  EXPECT_LT(all, 0.5 * all_without);
}

// Four magnitudes a row and block: +-a1 +-a2 of salient columns, +-b1 +-b2 of the others; each weight the nearest to
// its target.
TEST(BiLlm, StoresSignsUnderFewMagnitudes) {
  ThreadPool pool(2);
  const auto statistics = calibrated(pool);
  const PassMatrix matrix = passed("billm:block=32,salient=0.25", "q8_0", pool);
  EXPECT_EQ(matrix.codebook.bits, 2);
  ASSERT_EQ(matrix.codebook.entries.size(), static_cast<size_t>(kTestRows * kTestCols / 32 * 4));
  for (size_t i = 0; i < matrix.codebook.entries.size(); i += 4) {
    const auto entry = [&](size_t k) { return f16_to_f32(matrix.codebook.entries[i + k]); };
    EXPECT_EQ(entry(0), -entry(3));
    EXPECT_EQ(entry(1), -entry(2));
    EXPECT_GE(entry(3), entry(2));
  }
  // The salient columns are those of the outliers, which have the largest second moments.
  for (int32_t c : {7, 57, 107})
    EXPECT_NE(std::find(matrix.parts.input.order.begin(), matrix.parts.input.order.begin() + 32, c),
              matrix.parts.input.order.begin() + 32);
}

// On rows that the calibration did not see. Two binarizations have no more levels than the split, so salient columns
// bring nothing in 2 bits for every weight; they cost less than one sign would.
TEST(BiLlm, IsNearerThanSignsAlone) {
  PassMatrix signs = matrix_in("f32"), plain = matrix_in("f32");
  for (int64_t r = 0; r < kTestRows; ++r)
    for (int64_t block = 0; block < kTestCols; block += 32) {
      float* w = signs.values.data() + r * kTestCols + block;
      float mean = 0;
      for (int i = 0; i < 32; ++i) mean += std::fabs(w[i]) / 32;
      for (int i = 0; i < 32; ++i) w[i] = std::copysign(mean, w[i]);
    }
  const double alone = error_between(outputs(signs, held_out()), outputs(plain, held_out()));
  const double none = held_out_error("billm:block=32,salient=0", "q8_0");
  const double found = held_out_error("billm:block=32,salient=0.25", "q8_0");
  EXPECT_LT(none, 0.7 * alone);
  EXPECT_LT(found, alone);
}

}  // namespace
}  // namespace millrace
