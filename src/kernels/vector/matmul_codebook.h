// Products with any codebook, in f32, written over L, 16 lanes of f32 (matmul_codebook_*.cc).
// The order of sums is that of codebook_rows.h.
//
//   4 rows of a fold -> 8 KiB of f32 -> tiles of 4 rows by L::kTile tokens
//
// Included only by files compiled for one instruction set; all of it is in an unnamed namespace.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/codebook_rows.h"
#include "kernels/kernel_table.h"
#include "kernels/vector/matmul_codebook_pack.h"

namespace millrace {
namespace {

inline constexpr int64_t kTileRows = 4;

[[gnu::always_inline]] inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Columns of a fold of kTileRows decoded rows, kCodebookFold floats apart, times T tokens.
template <typename L, int T>
void multiply_decoded(const MatmulArgs& a, const float* weights, int64_t row, int64_t token, int64_t begin,
                      int64_t count) {
  typename L::V acc[T][kTileRows];
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r) acc[t][r] = L::zero();
  const uint8_t* x = a.x + token * a.x_stride + begin * static_cast<int64_t>(sizeof(float));
  for (int64_t c = 0; c < count; c += L::kLanes) {
    typename L::V w[kTileRows];
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r) w[r] = L::load(weights + r * kCodebookFold + c);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
      const typename L::V in = L::load(reinterpret_cast<const float*>(x + t * a.x_stride) + c);
#pragma GCC unroll 4
      for (int r = 0; r < kTileRows; ++r) acc[t][r] = L::fma(w[r], in, acc[t][r]);
    }
  }
  const int64_t rows = a.row_end - row;
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) {
    float* y = a.y + (token + t) * a.y_stride + row;
    const typename L::Four before = begin == 0 ? L::four_zeros() : L::load_four(y, rows);
    L::store_four(y, L::add_sums(before, acc[t]), rows);
  }
}

// All tokens times `rows` decoded rows, a multiple of kTileRows.
template <typename L>
void multiply_tokens(const MatmulArgs& a, const float* weights, int64_t row, int64_t rows, int64_t begin,
                     int64_t count) {
  [&]<int... i>(std::integer_sequence<int, i...>) {
    using Run = void (*)(const MatmulArgs&, const float*, int64_t, int64_t, int64_t, int64_t);
    static constexpr Run kRuns[] = {multiply_decoded<L, i + 1>...};
    for (int64_t token = 0; token < a.tokens; token += L::kTile)
      for (int64_t r = 0; r < rows && row + r < a.row_end; r += kTileRows)
        kRuns[smaller(L::kTile, a.tokens - token) - 1](a, weights + r * kCodebookFold, row + r, token, begin, count);
  }
  (std::make_integer_sequence<int, L::kTile>{});
}

// Columns [begin, end) of a row whose indices are at `packed`, and zeros up to a multiple of 16: what
// decode_codebook_row() does, in the same order.
template <typename L>
void decode_eights(const CodebookEights& book, const uint8_t* packed, int64_t begin, int64_t end, float* out) {
  const int64_t index_bytes = book.bits / 8, book_values = int64_t{8} << book.bits;
  packed += begin / 8 * book.books * index_bytes;
  for (int64_t c = begin; c < end; c += 8, out += 8) {
    typename L::Eight sum = L::eight_zeros();
    for (int m = 0; m < book.books; ++m, packed += index_bytes) {
      const int64_t index = index_bytes == 1 ? packed[0] : packed[0] | packed[1] << 8;
      const typename L::Eight entry = L::load_eight(book.entries + m * book_values + index * 8);
      sum = m == 0 ? entry : L::add_eights(sum, entry);
    }
    L::store_eight(out, L::scale_eight(sum, book.scale));
  }
  if ((end - begin) % L::kLanes != 0) L::store_eight(out, L::eight_zeros());
}

template <typename L>
void decode_row(const MatmulArgs& a, int64_t row, int64_t begin, int64_t end, float* out) {
  const CodebookEights eights = codebook_eights(*a.codebook, row);
  if (eights.entries == nullptr) return decode_codebook_row(*a.codebook, a.weights, row, a.cols, begin, end, out);
  decode_eights<L>(eights, a.weights + row * (a.cols / 8 * eights.books * eights.bits / 8), begin, end, out);
}

template <typename L>
void run_any_codebook(const MatmulArgs& a) {
  alignas(64) float weights[kTileRows * kCodebookFold];
  for (int64_t row = a.row_begin; row < a.row_end; row += kTileRows) {
    for (int64_t begin = 0; begin < a.cols; begin += kCodebookFold) {
      const int64_t end = smaller(a.cols, begin + kCodebookFold);
      const int64_t count = (end - begin + L::kLanes - 1) / L::kLanes * L::kLanes;
      for (int64_t r = 0; r < kTileRows; ++r)  // past the last row, the last one again
        decode_row<L>(a, smaller(row + r, a.row_end - 1), begin, end, weights + r * kCodebookFold);
      multiply_tokens<L>(a, weights, row, kTileRows, begin, count);
    }
  }
}

template <typename L>
void add_codebook_kernels(KernelTable& table) {
  MatmulKernel any;
  any.format = &codebook_indices();
  any.layout = "rows";
  any.row_tile = kTileRows;
  any.run = run_any_codebook<L>;
  any.takes = takes_any_codebook;
  any.codebook_bytes = codebook_rows_bytes;
  any.pack_codebook = pack_codebook_rows;
  set_codebook(table, any);
}

}  // namespace
}  // namespace millrace
