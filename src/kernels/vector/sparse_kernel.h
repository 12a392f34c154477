// Multiplies sparse matrices by a tile of tokens, which are the lanes of vectors. Each entry takes one load of its
// inputs, a product and a sum. Bit-identical to the reference. Include after a simd_*.h and its part_simd_*.h.
#pragma once

#include "kernels/part_kernels.h"

namespace millrace {
namespace {

inline void turn_tokens(const float* x, int64_t x_stride, int64_t tokens, int64_t cols, float* turned) noexcept {
  const int64_t width = turned_width(tokens);
  for (int64_t first = 0; first < width; first += Simd::kLanes) {
    const uint8_t* rows[Simd::kLanes];  // beyond the last token: rows of the last one
    for (int64_t i = 0; i < Simd::kLanes; ++i) {
      const int64_t t = first + i < tokens ? first + i : tokens - 1;
      rows[i] = reinterpret_cast<const uint8_t*>(x + t * x_stride);
    }
    int64_t c = 0;
    for (; c + 4 <= cols; c += 4) {
      Simd::F out[4];
      Simd::transpose_words(rows, c * 4, out);
      for (int64_t j = 0; j < 4; ++j) Simd::store(turned + (c + j) * width + first, out[j]);
    }
    for (; c < cols; ++c)
      for (int64_t i = 0; i < Simd::kLanes; ++i)
        turned[c * width + first + i] = reinterpret_cast<const float*>(rows[i])[c];
  }
}

// Adds the sums of kLanes rows, [row][token] for a tile of kWidth tokens, to y.
template <int kWidth>
inline void add_turned(const float* sums, const SparseRows& of, int64_t first) {
  const int64_t rows = of.rows - first < Simd::kLanes ? of.rows - first : Simd::kLanes;
  const uint8_t* lines[Simd::kLanes];
  for (int64_t r = 0; r < Simd::kLanes; ++r) lines[r] = reinterpret_cast<const uint8_t*>(sums + r * kWidth);
  for (int64_t t = 0; t < of.tokens; t += 4) {
    Simd::F columns[4];
    Simd::transpose_words(lines, t * 4, columns);
    for (int64_t j = 0; j < 4 && t + j < of.tokens; ++j) {
      float* const y = of.y + (t + j) * of.y_stride + first;
      if (rows == Simd::kLanes)
        Simd::store(y, Simd::add(Simd::load(y), columns[j]));
      else
        Simd::store_n(y, Simd::add(Simd::load_n(y, rows), columns[j]), rows);
    }
  }
}

template <int kWidth>
inline void add_sparse_tile(const SparseRows& of) {
  constexpr int kVectors = kWidth / Simd::kLanes;
  alignas(64) float sums[Simd::kLanes * kWidth];
  for (int64_t first = 0; first < of.rows; first += Simd::kLanes) {
    const int64_t rows = of.rows - first < Simd::kLanes ? of.rows - first : Simd::kLanes;
    for (int64_t r = 0; r < rows; ++r) {
      Simd::F sum[kVectors];
      for (int j = 0; j < kVectors; ++j) sum[j] = Simd::zero();
      for (int64_t i = of.row_begin[first + r]; i < of.row_begin[first + r + 1]; ++i) {
        const Simd::F value = Simd::set(of.values[i]);
        const float* const x = of.turned + of.columns[i] * kWidth;
        for (int j = 0; j < kVectors; ++j)
          sum[j] = Simd::add(sum[j], Simd::mul(value, Simd::load(x + j * Simd::kLanes)));
      }
      for (int j = 0; j < kVectors; ++j) Simd::store(sums + r * kWidth + j * Simd::kLanes, sum[j]);
    }
    for (int64_t i = rows * kWidth; i < Simd::kLanes * kWidth; ++i) sums[i] = 0;
    add_turned<kWidth>(sums, of, first);
  }
}

inline void add_sparse(const SparseRows& of) noexcept {
  switch (turned_width(of.tokens)) {
    case 16: return add_sparse_tile<16>(of);
    case 32: return add_sparse_tile<32>(of);
    case 48: return add_sparse_tile<48>(of);
    default: return add_sparse_tile<64>(of);
  }
}

}  // namespace
}  // namespace millrace
