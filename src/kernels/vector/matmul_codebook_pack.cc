#include "kernels/vector/matmul_codebook_pack.h"

#include <algorithm>
#include <cstring>

#include "tensor/codebook.h"

namespace millrace {
namespace {

constexpr int64_t kPartBytes = 16 * 16;  // of one vector for each q
constexpr int64_t kPlaneBytes = kTable16Rows * 4;

void place_planes(const uint8_t (&index)[kTable16CellColumns], int64_t row, uint8_t* cell) {
  for (int64_t c = 0; c < kTable16CellColumns; ++c) {
    const int64_t word = c % 32 / 4;  // of the group's eight
    uint8_t& to = cell[(c / 32 * 2 + word % 2) * kPlaneBytes + row * 4 + c % 4];
    to = static_cast<uint8_t>(to | index[c] << word / 2 * 2);
  }
}

// Adds a row's indices of a cell.
void place_cell(const uint8_t (&index)[kTable16CellColumns], int bits, int64_t row, uint8_t* cell) {
  if (bits == 2) return place_planes(index, row, cell);
  const int64_t part = row / 16;
  uint8_t* const to = cell + row % 4 * 64 + row % 16 / 4 * 16;
  if (bits == 4) {
    for (int64_t group = 0; group < 2; ++group) {
      const uint8_t* of = index + group * 32;
      uint8_t* out = to + (group * 2 + part) * kPartBytes;
      for (int j = 0; j < 16; ++j) out[j] = static_cast<uint8_t>(of[j] | of[16 + j] << 4);
    }
    return;
  }
  const auto field = [&](int j, int shift, int mask, int width) {
    int byte = 0;
    for (int run = 0; run < 4; ++run) byte |= (index[run * 16 + j] >> shift & mask) << run * width;
    return byte;
  };
  uint8_t* low = to + part * kPartBytes;
  for (int j = 0; j < 16; ++j) low[j] = static_cast<uint8_t>(field(j, 0, 3, 2));
  uint8_t* high = to + 2 * kPartBytes;
  for (int j = 0; j < 16; ++j) high[j] = static_cast<uint8_t>(high[j] | field(j, 2, 1, 1) << part * 4);
}

// The same of a whole row.
void place_indices(const Codebook& book, const uint8_t* indices, int64_t cols, int64_t row, const Table16Panel& at,
                   uint8_t* panel) {
  uint32_t held = 0;
  int held_bits = 0;
  for (int64_t cell = 0; cell < at.cells; ++cell) {
    uint8_t index[kTable16CellColumns] = {};
    for (int64_t c = 0; c < std::min(kTable16CellColumns, cols - cell * kTable16CellColumns); ++c) {
      if (held_bits < book.bits) {
        held |= uint32_t{*indices++} << held_bits;
        held_bits += 8;
      }
      index[c] = static_cast<uint8_t>(held & ((1u << book.bits) - 1));
      held >>= book.bits;
      held_bits -= book.bits;
    }
    place_cell(index, at.bits, row, panel + at.cell_at(cell));
  }
}

}  // namespace

Table16Panel table16_panel(const Codebook& book, int64_t cols) {
  Table16Panel at{.bits = std::max(book.bits, 2), .cells = (cols + kTable16CellColumns - 1) / kTable16CellColumns};
  at.groups = book.tables_per_row == 1 ? 2 * at.cells : book.cols_per_table / kTable16Columns;
  return at;
}

bool takes_table16(const Codebook& book) { return codebook_is_table16(book); }

int64_t table16_bytes(const Codebook& book, int64_t rows, int64_t cols) {
  return (rows + kTable16Rows - 1) / kTable16Rows * table16_panel(book, cols).bytes();
}

void pack_table16(const Codebook& book, const uint8_t* stored, int64_t cols, int64_t row_begin, int64_t row_end,
                  uint8_t* packed) {
  const Table16Panel at = table16_panel(book, cols);
  const int64_t levels = int64_t{1} << at.bits;
  for (int64_t first = row_begin; first < row_end; first += kTable16Rows) {
    uint8_t* panel = packed + first / kTable16Rows * at.bytes();
    std::memset(panel, 0, static_cast<size_t>(at.bytes()));
    for (int64_t row = 0; row < std::min(row_end - first, kTable16Rows); ++row) {
      for (int64_t i = 0; i < book.tables_per_row; ++i) {
        const Table16 table = codebook_table16(book, first + row, i);
        uint8_t* const to = panel + at.table_at(i);
        std::memcpy(to + table16_levels_at(at.bits, row), table.level, static_cast<size_t>(levels));
        std::memcpy(to + table16_levels_bytes(at.bits) + row * 4, &table.scale, sizeof table.scale);
      }
      place_indices(book, stored + (first + row) * book.row_bytes(cols), cols, row, at, panel);
    }
  }
}

}  // namespace millrace
