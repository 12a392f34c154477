// Panels of tables of at most 16 weights against the layout that matmul_codebook_pack.h describes: where tables and
// cells are, and that each level and scale is where kernels look for it.
#include "kernels/vector/matmul_codebook_pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "tensor/codebook.h"
#include "tensor/half.h"

namespace millrace {
namespace {

TEST(Table16Panels, TablesStandBeforeTheCellInWhichTheyBegin) {
  for (int bits : {2, 3, 4})
    for (int64_t cells : {1, 2, 5, 8})
      for (int64_t groups = 1; groups <= 2 * cells; ++groups) {
        const Table16Panel shape{.bits = bits, .cells = cells, .groups = groups};
        int64_t at = 0, tables = 0;
        for (int64_t cell = 0; cell < cells; ++cell) {
          for (int64_t group = 2 * cell; group < 2 * cell + 2; ++group)
            if (group % groups == 0) {
              EXPECT_EQ(shape.table_at(tables++), at) << bits << " " << cells << " " << groups;
              at += table16_table_bytes(bits);
            }
          EXPECT_EQ(shape.cell_at(cell), at) << bits << " " << cells << " " << groups;
          at += table16_cell_bytes(bits);
        }
        EXPECT_EQ(shape.tables(), tables);
        EXPECT_EQ(shape.bytes(), at);
      }
}

// The index of a column as the head of matmul_codebook_pack.h says.
int packed_index(int bits, const uint8_t* cell, int64_t row, int64_t column) {
  const int64_t part = row / 16, q = row % 4, lane = row % 16 / 4, group = column / 32, in = column % 32;
  if (bits == 2) {
    const int64_t word = in / 4;
    return cell[(group * 2 + word % 2) * 128 + row * 4 + in % 4] >> word / 2 * 2 & 3;
  }
  const int64_t byte = q * 64 + lane * 16 + in % 16;
  if (bits == 4) return cell[(group * 2 + part) * 256 + byte] >> in / 16 * 4 & 15;
  const int64_t run = column / 16;
  return (cell[part * 256 + byte] >> run * 2 & 3) | (cell[512 + byte] >> (part * 4 + run) & 1) << 2;
}

TEST(Table16Panels, LevelsAreWhereKernelsLookForThem) {
  constexpr int64_t kRows = 45, kCols = 208;
  std::mt19937 random(1);
  for (int bits : {1, 2, 3, 4})
    for (int64_t columns : {kCols, int64_t{32}, int64_t{96}, int64_t{128}}) {
      Codebook book{.bits = bits, .rows_per_table = 1, .cols_per_table = columns};
      book.tables_per_row = (kCols + columns - 1) / columns;
      for (int64_t i = 0; i < kRows * book.tables_per_row * book.table_values(); ++i)
        book.entries.push_back(f32_to_f16(static_cast<float>(random() % 201) / 100 - 1));
      std::vector<uint8_t> stored(static_cast<size_t>(kRows * book.row_bytes(kCols)));
      for (uint8_t& byte : stored) byte = static_cast<uint8_t>(random());
      const Table16Panel shape = table16_panel(book, kCols);
      std::vector<uint8_t> packed(static_cast<size_t>(table16_bytes(book, kRows, kCols)), 0xff);
      pack_table16(book, stored.data(), kCols, 0, kRows, packed.data());
      ASSERT_EQ(std::ssize(packed), 2 * shape.bytes());
      for (int64_t row = 0; row < kRows; ++row)
        for (int64_t col = 0; col < kCols; ++col) {
          const uint8_t* panel = packed.data() + row / 32 * shape.bytes();
          const uint8_t* at = panel + shape.table_at(col / columns);
          const int index = packed_index(shape.bits, panel + shape.cell_at(col / 64), row % 32, col % 64);
          const auto want = codebook_index(book, stored.data() + row * book.row_bytes(kCols), col);
          ASSERT_EQ(index, static_cast<int>(want)) << bits << " " << columns << " " << row << " " << col;
          const Table16 table = codebook_table16(book, row, col / columns);
          float scale = 0;
          std::memcpy(&scale, at + table16_levels_bytes(shape.bits) + row % 32 * 4, sizeof scale);
          ASSERT_EQ(static_cast<int8_t>(at[table16_levels_at(shape.bits, row % 32) + index]), table.level[index]);
          ASSERT_EQ(scale, table.scale);
        }
    }
}

}  // namespace
}  // namespace millrace
