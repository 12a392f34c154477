// Hadamard transforms of blocks, and mixing of blocks by a matrix of +1 and -1. Sums have the order of the reference,
// so results are bit-identical to it. Include after a simd_*.h and its part_simd_*.h.
//
// A step of a transform computes sums and differences of values at a distance of `half` = 1, 2, 4 ... Steps run on as
// many vectors as registers hold, so that a row is read and written once for three or more steps.
#pragma once

#include "kernels/part_kernels.h"

namespace millrace {
namespace {

// Runs the steps between kVectors vectors, in ascending order of their distance.
template <int kVectors>
[[gnu::always_inline]] inline void butterflies(Simd::F (&v)[kVectors]) {
  for (int half = 1; half < kVectors; half *= 2)
    for (int i = 0; i < kVectors; i += 2 * half)
      for (int j = i; j < i + half; ++j) {
        const Simd::F a = v[j], b = v[j + half];
        v[j] = Simd::add(a, b);
        v[j + half] = Simd::sub(a, b);
      }
}

// Runs the steps inside vectors: `half` = 1, 2 ... up to least / 2.
template <int kVectors>
[[gnu::always_inline]] inline void inner_butterflies(Simd::F (&v)[kVectors], int64_t least) {
  for (auto& one : v) one = PartSimd::template pair_sums<1>(one);
  if (least <= 2) return;
  for (auto& one : v) one = PartSimd::template pair_sums<2>(one);
  if (least <= 4) return;
  for (auto& one : v) one = PartSimd::template pair_sums<4>(one);
  if constexpr (Simd::kLanes == 16) {
    if (least <= 8) return;
    for (auto& one : v) one = PartSimd::template pair_sums<8>(one);
  }
}

// Runs the first steps on n values, kVectors vectors at a time. `scale`: not null if these are all steps.
template <int kVectors>
inline void first_steps(float* x, int64_t n, int64_t least, const Simd::F* scale) {
  for (; n > 0; x += kVectors * Simd::kLanes, n -= kVectors * Simd::kLanes) {
    Simd::F v[kVectors];
    for (int j = 0; j < kVectors; ++j) v[j] = Simd::load(x + j * Simd::kLanes);
    inner_butterflies(v, least);
    butterflies(v);
    for (int j = 0; j < kVectors; ++j) Simd::store(x + j * Simd::kLanes, scale ? Simd::mul(v[j], *scale) : v[j]);
  }
}

// Runs the steps half, 2 half ... half * kVectors / 2. `half`: at least one vector.
template <int kVectors>
inline void later_steps(float* x, int64_t n, int64_t half, const Simd::F* scale) {
  for (float* group = x; group < x + n; group += kVectors * half)
    for (float* at = group; at < group + half; at += Simd::kLanes) {
      Simd::F v[kVectors];
      for (int j = 0; j < kVectors; ++j) v[j] = Simd::load(at + j * half);
      butterflies(v);
      for (int j = 0; j < kVectors; ++j) Simd::store(at + j * half, scale ? Simd::mul(v[j], *scale) : v[j]);
    }
}

inline void hadamard(float* x, int64_t n, int64_t block) noexcept {
  const Simd::F scale = Simd::set(1.0f / __builtin_sqrtf(static_cast<float>(block)));
  if (block <= Simd::kLanes) {
    const int64_t whole = n / Simd::kLanes * Simd::kLanes;
    if (block > 1) first_steps<1>(x, whole, block, &scale);
    // The remaining values; for blocks of one value, all values.
    for (int64_t i = block > 1 ? whole : 0; i < n; i += Simd::kLanes) {
      const int64_t count = n - i < Simd::kLanes ? n - i : Simd::kLanes;
      if (count == Simd::kLanes) {
        Simd::store(x + i, Simd::mul(Simd::load(x + i), scale));
        continue;
      }
      Simd::F v[1] = {Simd::load_n(x + i, count)};
      if (block > 1) inner_butterflies(v, block);
      Simd::store_n(x + i, Simd::mul(v[0], scale), count);
    }
    return;
  }
  int64_t done = 0;  // block size of the transform after the steps so far
  const auto last = [&](int64_t size) { return size == block ? &scale : nullptr; };
  if (block >= 8 * Simd::kLanes)
    first_steps<8>(x, n, Simd::kLanes, last(done = 8 * Simd::kLanes));
  else if (block == 4 * Simd::kLanes)
    first_steps<4>(x, n, Simd::kLanes, last(done = 4 * Simd::kLanes));
  else
    first_steps<2>(x, n, Simd::kLanes, last(done = 2 * Simd::kLanes));
  while (done < block) {
    if (block >= 8 * done)
      later_steps<8>(x, n, done, last(8 * done)), done *= 8;
    else if (block == 4 * done)
      later_steps<4>(x, n, done, last(4 * done)), done *= 4;
    else
      later_steps<2>(x, n, done, last(2 * done)), done *= 2;
  }
}

// Computes rows [first, first + kRows) of kVectors vectors of columns. Products with +1 and -1 are exact.
template <int kRows, int kVectors>
[[gnu::always_inline]] inline void mix_rows(const MixedBlocks& of, int64_t first, int64_t column) {
  Simd::F sums[kRows][kVectors];
  for (auto& row : sums)
    for (Simd::F& sum : row) sum = Simd::zero();
  const float* signs = of.matrix + first * of.row_step;
  for (int64_t b = 0; b < of.count; ++b, signs += of.column_step) {
    const float* const from = of.x + b * of.block + column;
    Simd::F v[kVectors];
    for (int j = 0; j < kVectors; ++j) v[j] = Simd::load(from + j * Simd::kLanes);
    for (int r = 0; r < kRows; ++r) {
      const Simd::F sign = Simd::set(signs[r * of.row_step]);
      for (int j = 0; j < kVectors; ++j) sums[r][j] = Simd::fma(sign, v[j], sums[r][j]);
    }
  }
  const Simd::F scale = Simd::set(of.scale);
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kVectors; ++j)
      Simd::store(of.out + (first + r) * of.block + column + j * Simd::kLanes, Simd::mul(sums[r][j], scale));
}

template <int kVectors>
inline void mix_columns(const MixedBlocks& of, int64_t column) {
  int64_t a = 0;
  for (; a + 4 <= of.count; a += 4) mix_rows<4, kVectors>(of, a, column);
  for (; a < of.count; ++a) mix_rows<1, kVectors>(of, a, column);
}

// Mixes columns [column, column + n) of the blocks, fewer than a vector.
inline void mix_rest(const MixedBlocks& of, int64_t column, int64_t n) {
  for (int64_t a = 0; a < of.count; ++a) {
    Simd::F sum = Simd::zero();
    for (int64_t b = 0; b < of.count; ++b)
      sum = Simd::fma(Simd::set(of.matrix[a * of.row_step + b * of.column_step]),
                      Simd::load_n(of.x + b * of.block + column, n), sum);
    Simd::store_n(of.out + a * of.block + column, Simd::mul(sum, Simd::set(of.scale)), n);
  }
}

inline void mix_blocks(const MixedBlocks& of) noexcept {
  int64_t column = 0;
  for (; column + Simd::kVectors * Simd::kLanes <= of.block; column += Simd::kVectors * Simd::kLanes)
    mix_columns<Simd::kVectors>(of, column);
  for (; column + Simd::kLanes <= of.block; column += Simd::kLanes) mix_columns<1>(of, column);
  if (column < of.block) mix_rest(of, column, of.block - column);
}

}  // namespace
}  // namespace millrace
