// Binary-coding quantization: tables are sums of scaled bits, errors fall with bits and iterations, and one bit is near
// the best split of a row in two.
#include "compress/compress_test.h"
#include "contains.h"
#include "tensor/half.h"

namespace millrace {
namespace {

using namespace testing;

double squared_error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - b[i], 2);
  return sum;
}

TEST(LutGemm, TablesAreSumsOfScaledBits) {
  ThreadPool pool(2);
  for (const char* options : {"bits=4", "bits=3,group=32", "bits=2"}) {
    PassMatrix matrix = matrix_of(6, 96, "f16", 3);
    auto row = pass_of(std::string("lut_gemm:") + options)->apply(matrix, {}, pool);
    ASSERT_TRUE(row.ok());
    EXPECT_EQ(row->action, "quantized");
    const Codebook& book = matrix.codebook;
    const uint32_t size = 1u << book.bits;
    const int64_t tables = std::ssize(book.entries) / size;
    EXPECT_EQ(tables, 6 * 96 / book.cols_per_table);
    for (int64_t t = 0; t < tables; ++t) {
      const auto entry = [&](uint32_t i) { return f16_to_f32(book.entries[static_cast<size_t>(t) * size + i]); };
      double z = 0;
      for (uint32_t i = 0; i < size; ++i) z += entry(i) / double(size);
      for (uint32_t i = 0; i < size; ++i) {
        double sum = z;
        for (int bit = 0; bit < book.bits; ++bit) {
          const double a = (entry(1u << bit) - entry(0)) / 2.0;
          sum += (i >> bit & 1) ? a : -a;
        }
        ASSERT_NEAR(entry(i), sum, 0.01) << options << " " << t << " " << i;
      }
    }
    // Every weight has the nearest entry of its table.
    for (int64_t r = 0; r < 6; ++r)
      for (int64_t c = 0; c < 96; ++c) {
        const float value = matrix.values[static_cast<size_t>(r * 96 + c)];
        const uint32_t index = codebook_index(book, matrix.encoded.data() + r * book.row_bytes(96), c);
        const auto table = static_cast<size_t>(r * book.tables_per_row + c / book.cols_per_table) * size;
        for (uint32_t i = 0; i < size; ++i)
          ASSERT_LE(std::fabs(value - f16_to_f32(book.entries[table + index])),
                    std::fabs(value - f16_to_f32(book.entries[table + i])));
      }
  }
}

TEST(LutGemm, ErrorsFallWithBitsAndIterations) {
  ThreadPool pool(2);
  double before = INFINITY;
  for (int bits : {1, 2, 3, 4}) {
    const std::string text = "lut_gemm:bits=" + std::to_string(bits);
    PassMatrix greedy = matrix_of(12, 256, "f16", 4), ours = greedy;
    ASSERT_TRUE(pass_of(text + ",iterations=0")->apply(greedy, {}, pool).ok());
    ASSERT_TRUE(pass_of(text)->apply(ours, {}, pool).ok());
    const double found = squared_error(ours.values, whole_matrix(ours));
    EXPECT_LT(found, before / 2);
    EXPECT_LE(found, (bits > 1 ? 0.98 : 1.0) * squared_error(greedy.values, whole_matrix(greedy))) << bits;
    before = found;
  }
}

// z +- a are any two values: brute force over all splits of the sorted row.
TEST(LutGemm, OneBitIsNearTheBestSplit) {
  ThreadPool pool(1);
  for (uint32_t seed : {1u, 2u, 3u, 4u}) {
    PassMatrix matrix = matrix_of(1, 128, "f16", seed);
    ASSERT_TRUE(pass_of("lut_gemm:bits=1,iterations=100")->apply(matrix, {}, pool).ok());
    std::vector<float> sorted = matrix.values;
    std::ranges::sort(sorted);
    double least = INFINITY;
    for (size_t split = 1; split < sorted.size(); ++split) {
      double error = 0;
      for (const auto& [begin, end] : {std::pair(size_t{0}, split), std::pair(split, sorted.size())}) {
        double mean = 0;
        for (size_t i = begin; i < end; ++i) mean += sorted[i] / static_cast<double>(end - begin);
        for (size_t i = begin; i < end; ++i) error += std::pow(sorted[i] - mean, 2);
      }
      least = std::min(least, error);
    }
    EXPECT_LE(squared_error(matrix.values, whole_matrix(matrix)), 1.03 * least) << seed;
  }
}

// Evenly spaced sums are a binary code too, so plain rounding over the range of a row is never nearer. Greedy scales
// alone were worse on evenly distributed weights.
TEST(LutGemm, NoRowIsWorseThanEvenRounding) {
  ThreadPool pool(2);
  for (const int bits : {2, 3, 4}) {
    PassMatrix ours = matrix_of(9, 128, "f16", 9);
    for (int64_t i = 0; i < 3 * 128; ++i)  // the first rows: evenly distributed
      ours.values[static_cast<size_t>(i)] = 0.01f * static_cast<float>(i * 37 % 128) - 0.5f;
    for (size_t row = 3; row < 6; ++row) ours.values[row * 128 + row] = 12;  // rows with an outlier
    PassMatrix even = ours;
    const std::string option = "bits=" + std::to_string(bits);
    ASSERT_TRUE(pass_of("lut_gemm:" + option)->apply(ours, {}, pool).ok());
    ASSERT_TRUE(pass_of("squeezellm:table=even," + option)
                    ->apply(even, statistics_of(normal_values(200 * 128, 10), 128, pool), pool)
                    .ok());
    const std::vector<float> found = whole_matrix(ours), plain = whole_matrix(even);
    for (auto row = ours.values.begin(); row < ours.values.end(); row += 128) {
      const auto at = row - ours.values.begin();
      const std::vector<float> values(row, row + 128);
      EXPECT_LE(squared_error(values, {found.begin() + at, found.begin() + at + 128}),
                1.001 * squared_error(values, {plain.begin() + at, plain.begin() + at + 128}))
          << bits << " " << at / 128;
    }
  }
}

TEST(LutGemm, LeavesWhatHasNoTable) {
  ThreadPool pool(1);
  PassMatrix matrix = matrix_of(4, 96, "f16", 5);
  auto row = pass_of("lut_gemm:group=64")->apply(matrix, {}, pool);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->why, "96 columns are not a multiple of group=64");
  matrix.no_parts = "an embedding table cannot have weight parts";
  row = pass_of("lut_gemm")->apply(matrix, {}, pool);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->action, "left");
  EXPECT_FALSE(matrix.has_codebook());
}

}  // namespace
}  // namespace millrace
