#include "kernels/vector/matmul_codebook_pack.h"

#include <algorithm>
#include <cstring>

#include "kernels/codebook_rows.h"
#include "tensor/codebook.h"

namespace millrace {
namespace {

constexpr int64_t kPartBytes = 16 * 16;  // of one vector for each q

// Adds a row's indices of a cell; `to` has the row's 16 bytes in the cell's first vectors of part 0.
void place_cell(const uint8_t (&index)[kTable16CellColumns], int bits, int64_t part, uint8_t* to) {
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
  if (bits == 2) return;
  uint8_t* high = to + 2 * kPartBytes;
  for (int j = 0; j < 16; ++j) high[j] = static_cast<uint8_t>(high[j] | field(j, 2, 1, 1) << part * 4);
}

// The same of a whole row.
void place_indices(const Codebook& book, const uint8_t* indices, int64_t cols, int64_t part, uint8_t* to) {
  const int bits = table16_bits(book);
  uint32_t held = 0;
  int held_bits = 0;
  for (int64_t begin = 0; begin < cols; begin += kTable16CellColumns, to += table16_cell_bytes(bits)) {
    uint8_t index[kTable16CellColumns] = {};
    for (int64_t c = 0; c < std::min(kTable16CellColumns, cols - begin); ++c) {
      if (held_bits < book.bits) {
        held |= uint32_t{*indices++} << held_bits;
        held_bits += 8;
      }
      index[c] = static_cast<uint8_t>(held & ((1u << book.bits) - 1));
      held >>= book.bits;
      held_bits -= book.bits;
    }
    place_cell(index, bits, part, to);
  }
}

}  // namespace

bool takes_any_codebook(const Codebook& /*book*/) { return true; }

int64_t codebook_rows_bytes(const Codebook& book, int64_t rows, int64_t cols) { return rows * book.row_bytes(cols); }

void pack_codebook_rows(const Codebook& book, const uint8_t* stored, int64_t cols, int64_t row_begin, int64_t row_end,
                        uint8_t* packed) {
  const int64_t row = book.row_bytes(cols);
  std::memcpy(packed + row_begin * row, stored + row_begin * row, static_cast<size_t>((row_end - row_begin) * row));
}

void decode_codebook_row(const Codebook& book, const uint8_t* packed, int64_t row, int64_t cols, int64_t begin,
                         int64_t end, float* out) {
  decode_codebook(book, packed + row * book.row_bytes(cols), row, begin, end - begin, out);
  std::fill(out + (end - begin), out + (end - begin + 15) / 16 * 16, 0.0f);
}

CodebookEights codebook_eights(const Codebook& book, int64_t row) {
  if (book.dim != 8 || (book.bits != 8 && book.bits != 16) || book.tables_per_row != 1) return {};
  const int64_t table = (book.first_row + row) / book.rows_per_table;
  return {.entries = book.entries.data() + table * book.table_values(),
          .bits = book.bits,
          .books = book.books,
          .scale = book.row_scales.empty() ? 1.0f : book.row_scales[static_cast<size_t>(row)]};
}

int table16_bits(const Codebook& book) { return std::max(book.bits, 2); }

bool takes_table16(const Codebook& book) { return codebook_is_table16(book); }

int64_t table16_bytes(const Codebook& book, int64_t rows, int64_t cols) {
  return (rows + kTable16Rows - 1) / kTable16Rows * table16_panel_bytes(table16_bits(book), cols);
}

void pack_table16(const Codebook& book, const uint8_t* stored, int64_t cols, int64_t row_begin, int64_t row_end,
                  uint8_t* packed) {
  const int64_t panel_bytes = table16_panel_bytes(table16_bits(book), cols);
  for (int64_t first = row_begin; first < row_end; first += kTable16Rows) {
    uint8_t* panel = packed + first / kTable16Rows * panel_bytes;
    std::memset(panel, 0, static_cast<size_t>(panel_bytes));
    for (int64_t row = first; row < std::min(row_end, first + kTable16Rows); ++row) {
      const int64_t part = (row - first) / 16, in = (row - first) % 16;
      const int64_t at = in % 4 * 64 + in / 4 * 16;
      const Table16 table = codebook_table16(book, row);
      std::memcpy(panel + part * kPartBytes + at, table.level, sizeof table.level);
      std::memcpy(panel + kTable16ScalesAt + (row - first) * 4, &table.scale, sizeof table.scale);
      place_indices(book, stored + row * book.row_bytes(cols), cols, part, panel + kTable16CellsAt + at);
    }
  }
}

}  // namespace millrace
