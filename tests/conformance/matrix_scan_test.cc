// The scan of matrices of every table, with and without the delta rule's correction, against its definition in double,
// and bit for bit against itself in pieces: of tokens, and of columns.
#include "kernels/matrix_scan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernel_tables.h"

namespace millrace {
namespace {

using testing::expect_close;
using testing::kernel_tables;
using testing::random_values;
using testing::same_bits;

// Inputs and outputs of one head, with rows wider than what is read and guards between them.
struct MatrixHead {
  int64_t tokens, keys, columns;
  bool corrects;
  std::vector<float> state, rows, rates, y;  // rows: [q | k | v | 2 more]; rates: [rate, decay, 1 more]

  MatrixHead(int64_t t, int64_t k, int64_t c, bool delta) : tokens(t), keys(k), columns(c), corrects(delta) {
    state = random_values(keys * columns, 1);
    rows = random_values(tokens * row_values(), 2);
    for (int64_t i = 0; i < tokens; ++i)  // keys of length 1, at most: the rule of longer ones diverges
      for (int64_t n = 0; n < 2 * keys; ++n) rows[i * row_values() + n] /= 3.0f * std::sqrt(static_cast<float>(keys));
    rates = random_values(3 * tokens, 3);
    for (float& rate : rates) rate = 1 / (1 + std::exp(-rate));
    y = std::vector<float>(tokens * (columns + 1), 99.0f);
  }
  int64_t row_values() const { return 2 * keys + columns + 2; }

  void scan(const KernelTable& table, int64_t t, int64_t count) {
    const float* row = rows.data() + t * row_values();
    matrix_scan_kernel(table.isa)({.tokens = count,
                                   .keys = keys,
                                   .columns = columns,
                                   .corrects = corrects,
                                   .state = state.data(),
                                   .q = row,
                                   .k = row + keys,
                                   .key_stride = row_values(),
                                   .v = row + 2 * keys,
                                   .v_stride = row_values(),
                                   .decay = rates.data() + 3 * t + 1,
                                   .rate = rates.data() + 3 * t,
                                   .rate_stride = 3,
                                   .y = y.data() + t * (columns + 1),
                                   .y_stride = columns + 1});
  }
  // Columns [first, first + width) alone.
  MatrixHead part(int64_t first, int64_t width) const {
    MatrixHead out(tokens, keys, width, corrects);
    out.rates = rates;
    for (int64_t n = 0; n < keys; ++n)
      for (int64_t c = 0; c < width; ++c) out.state[n * width + c] = state[n * columns + first + c];
    for (int64_t t = 0; t < tokens; ++t) {
      const float* row = rows.data() + t * row_values();
      float* to = out.rows.data() + t * out.row_values();
      std::copy_n(row, 2 * keys, to);
      std::copy_n(row + 2 * keys + first, width, to + 2 * keys);
    }
    return out;
  }
};

TEST(MatrixScan, EqualsItsDefinition) {
  for (const KernelTable& table : kernel_tables()) {
    for (const bool corrects : {false, true}) {
      for (const auto& [keys, columns] : {std::pair{1, 1}, {6, 10}, {7, 16}, {64, 17}, {128, 32}, {33, 75}}) {
        SCOPED_TRACE(fmt::format("{} keys {} columns {} corrects {}", isa_name(table.isa), keys, columns, corrects));
        const MatrixHead before(6, keys, columns, corrects);
        MatrixHead s = before;
        s.scan(table, 0, 6);
        std::vector<double> state(before.state.begin(), before.state.end());
        std::vector<float> y = before.y;
        for (int64_t t = 0; t < s.tokens; ++t) {
          const float* row = before.rows.data() + t * s.row_values();
          const double rate = before.rates[3 * t], decay = before.rates[3 * t + 1];
          for (int64_t c = 0; c < columns; ++c) {
            double held = 0, out = 0;
            for (int64_t n = 0; n < keys; ++n) {
              state[n * columns + c] *= decay;
              held += state[n * columns + c] * row[keys + n];
            }
            const double change = rate * (row[2 * keys + c] - (corrects ? held : 0.0));
            for (int64_t n = 0; n < keys; ++n) {
              state[n * columns + c] += row[keys + n] * change;
              out += state[n * columns + c] * row[n];
            }
            y[t * (columns + 1) + c] = static_cast<float>(out);
          }
        }
        expect_close(s.y, y, 2e-6);
        expect_close(s.state, std::vector<float>(state.begin(), state.end()), 2e-6);
      }
    }
  }
}

TEST(MatrixScan, PiecesOfTokensAndColumnsGiveTheSameBits) {
  for (const KernelTable& table : kernel_tables()) {
    for (const bool corrects : {false, true}) {
      const MatrixHead before(9, 19, 75, corrects);
      MatrixHead whole = before, tokens = before;
      whole.scan(table, 0, 9);
      for (int64_t t = 0, count; t < 9; t += count) {
        count = std::min<int64_t>(1 + t, 9 - t);
        tokens.scan(table, t, count);
      }
      EXPECT_TRUE(same_bits(whole.y, tokens.y) && same_bits(whole.state, tokens.state)) << isa_name(table.isa);
      for (int64_t first = 0, width; first < 75; first += width) {
        width = std::min<int64_t>(first % 2 ? 16 : 5, 75 - first);
        MatrixHead part = before.part(first, width);
        part.scan(table, 0, 9);
        const MatrixHead expected = whole.part(first, width);
        EXPECT_TRUE(same_bits(part.state, expected.state)) << isa_name(table.isa) << " from column " << first;
        for (int64_t t = 0; t < 9; ++t)
          for (int64_t c = 0; c < width; ++c) EXPECT_EQ(part.y[t * (width + 1) + c], whole.y[t * 76 + first + c]);
      }
    }
  }
}

TEST(MatrixScan, WritesNothingBesideItsRows) {
  for (const KernelTable& table : kernel_tables()) {
    MatrixHead s(3, 8, 21, true);
    const std::vector<float> rows = s.rows, rates = s.rates;
    s.scan(table, 0, 3);
    EXPECT_TRUE(same_bits(rows, s.rows) && same_bits(rates, s.rates)) << isa_name(table.isa);
    for (int64_t t = 0; t < 3; ++t) EXPECT_EQ(s.y[t * 22 + 21], 99.0f) << isa_name(table.isa);
  }
}

}  // namespace
}  // namespace millrace
