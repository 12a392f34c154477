// Rotary position embedding of the rows of a block (RotatedRows) in vectors. The angle of a row is the sum of the
// block's angle and the angle of the row's place in the block. The sum is computed from sines and cosines, so both
// tables are small and stay in the L1 cache. Include after rope_kernel.h.
#pragma once

#include <cstring>

#include "kernels/ops.h"

namespace millrace {
namespace {

// Sines and cosines of some frequencies.
struct Turn {
  Simd::F cos, sin;

  // `from`: [cos, sin][pairs]; n: fewer than all lanes, or kLanes.
  static Turn load(const float* from, int64_t pairs, int64_t n) {
    if (n == Simd::kLanes) return {Simd::load(from), Simd::load(from + pairs)};
    return {Simd::load_n(from, n), Simd::load_n(from + pairs, n)};
  }
  Turn plus(const Turn& other) const {
    return {Simd::fnma(sin, other.sin, Simd::mul(cos, other.cos)),
            Simd::fma(sin, other.cos, Simd::mul(cos, other.sin))};
  }
  Turn back() const { return {cos, Simd::sub(Simd::zero(), sin)}; }
};

// Rotates pairs (i, i + pairs) of one row, from `row` on.
inline void rotate_halves(uint8_t* row, int64_t pairs, const Turn& turn) {
  Simd::F a = Simd::load_f16(row), b = Simd::load_f16(row + 2 * pairs);
  rotate(a, b, turn.cos, turn.sin);
  Simd::store_f16(row, a);
  Simd::store_f16(row + 2 * pairs, b);
}

// Rotates pairs (2 i, 2 i + 1).
inline void rotate_adjacent(uint8_t* row, const Turn& turn) {
  constexpr int64_t kBytes = 2 * Simd::kLanes;
  Simd::F a = Simd::load_f16(row), b = Simd::load_f16(row + kBytes), x, y;
  Simd::split_pairs(a, b, x, y);
  rotate(x, y, turn.cos, turn.sin);
  Simd::join_pairs(x, y, a, b);
  Simd::store_f16(row, a);
  Simd::store_f16(row + kBytes, b);
}

// Rotates the last n pairs, fewer than a vector, in a copy that has room for a vector.
inline void rotate_last(uint8_t* row, int64_t pairs, int64_t n, bool half, const Turn& turn) {
  constexpr int64_t kBytes = 2 * Simd::kLanes;
  uint8_t copy[2 * kBytes] = {};
  const auto bytes = static_cast<size_t>(2 * n);
  if (!half) {
    std::memcpy(copy, row, 2 * bytes);
    rotate_adjacent(copy, turn);
    std::memcpy(row, copy, 2 * bytes);
    return;
  }
  std::memcpy(copy, row, bytes);
  std::memcpy(copy + kBytes, row + 2 * pairs, bytes);
  rotate_halves(copy, Simd::kLanes, turn);
  std::memcpy(row, copy, bytes);
  std::memcpy(row + 2 * pairs, copy + kBytes, bytes);
}

inline void rotate_rows(const RotatedRows& r) noexcept {
  const int64_t pairs = r.rotated / 2;
  for (int64_t i = 0; i < pairs; i += Simd::kLanes) {
    const int64_t n = pairs - i < Simd::kLanes ? pairs - i : Simd::kLanes;
    const Turn block = Turn::load(r.block_turn + i, pairs, n);
    uint8_t* row = r.rows + (r.half ? 2 : 4) * i;
    for (int64_t t = 0; t < r.count; ++t, row += 2 * r.dim) {
      Turn turn = block.plus(Turn::load(r.row_turns + 2 * t * pairs + i, pairs, n));
      if (r.back) turn = turn.back();
      if (n < Simd::kLanes)
        rotate_last(row, pairs, n, r.half, turn);
      else
        r.half ? rotate_halves(row, pairs, turn) : rotate_adjacent(row, turn);
    }
  }
}

}  // namespace
}  // namespace millrace
