// Kernels of weights with parts, of every table: the bits of the reference, and the reference against definitions in
// double. Odd sizes, rows at any offset, values that are tiny, huge, NaN or infinite.
#include "kernels/part_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernel_tables.h"
#include "kernels/activation.h"

namespace millrace {
namespace {

using testing::expect_close;
using testing::random_values;
using testing::same_bits;
using Values = std::vector<float>;

constexpr float kPartGuard = 12345.5f;
constexpr int64_t kPartSizes[] = {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 128, 200, 257, 1024};

// int8, int4, int2, e4m3, e5m2, e2m1, e3m0, e1m2: exponent of the least normal number, mantissa bits, largest, factor.
const RoundedNumbers kNumbers[] = {{7, 7, 127, 1, 1},  {3, 3, 7, 0.9f, 1}, {1, 1, 1, 1, 1},   {-6, 3, 448, 1, 512},
                                   {-14, 2, 57344, 1}, {0, 1, 6, 0.8f, 2}, {-2, 0, 16, 1, 4}, {1, 2, 3.5f, 1, 2}};

bool has_levels(const RoundedNumbers& numbers) { return numbers.largest * numbers.factor <= 127; }

// Rows to be rounded: ordinary ones, ties, and what is not ordinary.
std::vector<Values> rounded_rows(int64_t n) {
  std::vector<Values> rows = {random_values(n, 1), random_values(n, 2), random_values(n, 3), Values(n, 0.0f)};
  for (float& x : rows[1]) x *= 0x1p-101f;  // all below the least that counts
  for (float& x : rows[2]) x *= 1e38f;
  Values halves(n);
  for (int64_t i = 0; i < n; ++i) halves[i] = static_cast<float>(i % 29 - 14) * 0.25f;
  rows.push_back(halves);
  for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    for (int64_t at : {int64_t{0}, n / 2, n - 1}) {
      rows.push_back(rows[0]);
      rows.back()[at] = bad;
    }
  rows.push_back(rows[0]);
  rows.back()[n - 1] = 1e30f;  // the others vanish beside it
  return rows;
}

// The same bits, but for the bits of NaN.
::testing::AssertionResult alike(const Values& a, const Values& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(&a[i], &b[i], 4) != 0 && !(std::isnan(a[i]) && std::isnan(b[i])))
      return ::testing::AssertionFailure() << "value " << i << ": " << a[i] << ", expected " << b[i];
  return ::testing::AssertionSuccess();
}

template <typename Body>
void for_each_part_size(const Body& body) {
  for (Isa isa : isa_variants())
    for (int64_t n : kPartSizes) {
      SCOPED_TRACE(isa_name(isa) + " n = " + std::to_string(n));
      body(part_kernels(isa), n);
    }
}

TEST(RoundedInputs, GroupsHaveTheBitsOfTheReference) {
  for_each_part_size([](const PartKernels& kernels, int64_t n) {
    for (const RoundedNumbers& numbers : kNumbers)
      for (const Values& row : rounded_rows(n)) {
        Values expected = row, found(n + 20, kPartGuard);
        std::copy(row.begin(), row.end(), found.begin() + 3);
        part_kernels(Isa::ref).round_group(numbers, expected.data(), n);
        kernels.round_group(numbers, found.data() + 3, n);
        for (size_t i = 0; i < found.size(); ++i)
          if (i < 3 || i >= static_cast<size_t>(n) + 3) {
            ASSERT_EQ(found[i], kPartGuard);
          }
        ASSERT_TRUE(alike({found.begin() + 3, found.begin() + 3 + n}, expected)) << numbers.largest;
      }
  });
}

TEST(RoundedInputs, RecordsHaveTheBitsOfTheReference) {
  for_each_part_size([](const PartKernels& kernels, int64_t n) {
    for (const RoundedNumbers& numbers : kNumbers) {
      if (!has_levels(numbers)) continue;
      for (const Values& row : rounded_rows(n))
        for (bool unit_scale : {false, true}) {
          const auto bytes = static_cast<size_t>((n + kActivationGroup - 1) / kActivationGroup * kQ8GroupBytes);
          std::vector<uint8_t> expected(bytes + 8, 0x5a), found(bytes + 8, 0x5a);
          const float a = part_kernels(Isa::ref).encode_group(numbers, row.data(), n, unit_scale, expected.data());
          const float b = kernels.encode_group(numbers, row.data(), n, unit_scale, found.data());
          ASSERT_TRUE(alike({b}, {a}));
          if (std::isnan(a)) {  // whose bits may differ in the records
            ASSERT_EQ(std::memcmp(found.data(), expected.data(), kActivationGroup), 0);
            float scale = 0;
            std::memcpy(&scale, found.data() + kQ8ScaleAt, sizeof scale);
            ASSERT_TRUE(unit_scale ? scale == 1 : std::isnan(scale));
          } else {
            ASSERT_EQ(found, expected) << numbers.largest;
          }
        }
    }
  });
}

TEST(ChangedInputs, AreShiftedAndScaled) {
  for_each_part_size([](const PartKernels& kernels, int64_t n) {
    const Values x = random_values(n, 4), shift = random_values(n, 5), scale = random_values(n, 6);
    for (int parts = 0; parts < 4; ++parts) {
      const float *s = parts & 1 ? shift.data() : nullptr, *f = parts & 2 ? scale.data() : nullptr;
      Values expected(n), found(n + 17, kPartGuard), in_place = x;
      for (int64_t i = 0; i < n; ++i) {
        expected[i] = x[i];
        if (s) expected[i] -= shift[i];
        if (f) expected[i] *= scale[i];
      }
      kernels.shift_scale(x.data(), s, f, n, found.data());
      kernels.shift_scale(in_place.data(), s, f, n, in_place.data());
      EXPECT_TRUE(same_bits({found.begin(), found.begin() + n}, expected));
      EXPECT_TRUE(same_bits(in_place, expected));
      EXPECT_EQ(found[n], kPartGuard);
    }
  });
}

TEST(Hadamard, HasTheBitsOfTheReferenceWhichIsTheDefinition) {
  for (int64_t block = 1; block <= 8192; block *= 2)
    for (int64_t blocks : {1, 3, 5}) {
      const int64_t n = block * blocks;
      const Values x = random_values(n, static_cast<uint64_t>(n));
      Values reference = x;
      part_kernels(Isa::ref).hadamard(reference.data(), n, block);
      if (block <= 512) {
        Values defined(n);
        for (int64_t i = 0; i < n; ++i) {
          double sum = 0;
          for (int64_t j = 0; j < block; ++j)
            sum += (__builtin_popcountll(static_cast<uint64_t>(i % block & j)) % 2 ? -1.0 : 1.0) *
                   x[i / block * block + j];
          defined[i] = static_cast<float>(sum / std::sqrt(static_cast<double>(block)));
        }
        expect_close(reference, defined, 1e-5);
      }
      for (Isa isa : isa_variants()) {
        const PartKernels& kernels = part_kernels(isa);
        Values found(n + 40, kPartGuard);
        std::copy(x.begin(), x.end(), found.begin() + 1);
        kernels.hadamard(found.data() + 1, n, block);
        EXPECT_TRUE(same_bits({found.begin() + 1, found.begin() + 1 + n}, reference))
            << isa_name(isa) << " " << block << " " << blocks;
        EXPECT_TRUE(found[0] == kPartGuard && found[n + 1] == kPartGuard);
      }
    }
}

TEST(MixedBlocks, HaveTheBitsOfTheReferenceWhichIsTheDefinition) {
  for (int64_t count : {1, 4, 12, 28, 6})
    for (int64_t block : {1, 4, 8, 20, 32, 64, 70, 128}) {
      Values matrix = random_values(count * count, 8);
      for (float& sign : matrix) sign = sign < 0 ? -1.0f : 1.0f;
      const Values x = random_values(count * block, 9);
      for (bool transposed : {false, true}) {
        MixedBlocks mixed{.x = x.data(),
                          .block = block,
                          .count = count,
                          .matrix = matrix.data(),
                          .row_step = transposed ? 1 : count,
                          .column_step = transposed ? count : 1,
                          .scale = 0.3f};
        Values reference(x.size()), defined;
        for (int64_t a = 0; a < count; ++a)
          for (int64_t j = 0; j < block; ++j) {
            double sum = 0;
            for (int64_t b = 0; b < count; ++b)
              sum += double{transposed ? matrix[b * count + a] : matrix[a * count + b]} * x[b * block + j];
            defined.push_back(static_cast<float>(sum * double{0.3f}));
          }
        mixed.out = reference.data();
        part_kernels(Isa::ref).mix_blocks(mixed);
        expect_close(reference, defined, 1e-5);
        for (Isa isa : isa_variants()) {
          const PartKernels& kernels = part_kernels(isa);
          Values found(x.size() + 1, kPartGuard);
          mixed.out = found.data();
          kernels.mix_blocks(mixed);
          EXPECT_EQ(found.back(), kPartGuard);
          found.pop_back();
          EXPECT_TRUE(same_bits(found, reference)) << isa_name(isa) << " " << count << " " << block;
        }
      }
    }
}

TEST(SparseRows, HaveTheBitsOfTheSumsInOrder) {
  for (int64_t cols : {3, 16, 37})
    for (int64_t rows : {1, 8, 16, 21, 64})
      for (int64_t tokens : {1, 3, 4, 15, 16, 17, 40, 63, 64}) {
        const int64_t x_stride = cols + 2, y_stride = rows + 3;
        const Values x = random_values(tokens * x_stride, 10), kept = random_values(rows * cols, 11);
        std::vector<int64_t> row_begin = {0};
        std::vector<int32_t> columns;
        Values values, y = random_values(tokens * y_stride, 12), expected = y;
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < cols; ++c)
            if (r % 5 != 2 && kept[r * cols + c] > 1)
              columns.push_back(static_cast<int32_t>(c)), values.push_back(kept[r * cols + c]);
          row_begin.push_back(std::ssize(columns));
        }
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t r = 0; r < rows; ++r) {
            float sum = 0;
            for (int64_t i = row_begin[r]; i < row_begin[r + 1]; ++i) sum += values[i] * x[t * x_stride + columns[i]];
            expected[t * y_stride + r] += sum;
          }
        for (Isa isa : isa_variants()) {
          const PartKernels& kernels = part_kernels(isa);
          Values turned(cols * turned_width(tokens) + 1, kPartGuard), found = y;
          kernels.turn_tokens(x.data(), x_stride, tokens, cols, turned.data());
          EXPECT_EQ(turned.back(), kPartGuard);
          kernels.add_sparse({.row_begin = row_begin.data(),
                              .columns = columns.data(),
                              .values = values.data(),
                              .rows = rows,
                              .turned = turned.data(),
                              .tokens = tokens,
                              .y = found.data(),
                              .y_stride = y_stride});
          EXPECT_TRUE(same_bits(found, expected)) << isa_name(isa) << " " << cols << " " << rows << " " << tokens;
        }
      }
}

}  // namespace
}  // namespace millrace
