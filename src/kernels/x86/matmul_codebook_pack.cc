#include "kernels/x86/matmul_codebook_pack.h"

#include <algorithm>
#include <cstring>

#include "kernels/codebook_rows.h"
#include "tensor/codebook.h"

namespace millrace {
namespace {

// Adds a row's indices to the cells of a panel; `at` is the offset of the row's 16 bytes in a part's vectors.
void place_indices(const Codebook& book, const uint8_t* indices, int64_t cols, int64_t part, int64_t at,
                   uint8_t* cells) {
  constexpr int64_t kPartBytes = 16 * 16;  // of one vector for each q
  const int bits = table16_bits(book);
  const auto add = [](uint8_t& byte, uint32_t value, int64_t shift) {
    byte = static_cast<uint8_t>(byte | value << shift);
  };
  uint32_t held = 0;
  int held_bits = 0;
  for (int64_t c = 0; c < cols; ++c) {
    if (held_bits < book.bits) {
      held |= uint32_t{*indices++} << held_bits;
      held_bits += 8;
    }
    const uint32_t index = held & ((1u << book.bits) - 1);
    held >>= book.bits;
    held_bits -= book.bits;
    const int64_t run = c % kTable16CellColumns / 16;
    uint8_t* const to = cells + c / kTable16CellColumns * table16_cell_bytes(bits) + at + c % 16;
    if (bits == 4) {
      add(to[(run / 2 * 2 + part) * kPartBytes], index, run % 2 * 4);
      continue;
    }
    add(to[part * kPartBytes], index & 3, run * 2);
    if (bits == 3) add(to[2 * kPartBytes], index >> 2, part * 4 + run);
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
      std::memcpy(panel + part * 256 + at, table.level, sizeof table.level);
      std::memcpy(panel + kTable16ScalesAt + (row - first) * 4, &table.scale, sizeof table.scale);
      place_indices(book, stored + row * book.row_bytes(cols), cols, part, at, panel + kTable16CellsAt);
    }
  }
}

}  // namespace millrace
