// Joins the two planes of 3-bit levels, in the compiler's vector types, from one source for every vector width.
#pragma once

#include <cstdint>

namespace millrace {
namespace {

using LevelLanes = uint32_t __attribute__((vector_size(sizeof(Simd::F))));
using LevelHalves = uint16_t __attribute__((vector_size(sizeof(Simd::F))));

// Joins the 3-bit levels of transposed words (AffineRows). Values v = 4 h + 8 k + j and v + 16 become the lower and
// upper four bits of byte j of joined[2 h + k]. spread(lanes, k) returns byte k of each lane as a number in both halves
// of the lane.
template <typename Spread>
[[gnu::always_inline]] inline void join_level_bits(const Simd::F* words, Simd::F* joined, const Spread& spread) {
  // Third bits: a multiplication moves them to their places in each half of a lane.
  const LevelHalves moves = reinterpret_cast<LevelHalves>(LevelLanes{} + 0x00810204u);
  const auto top = reinterpret_cast<LevelLanes>(words[2]);
  for (int h = 0; h < 2; ++h) {
    LevelLanes eight = (h ? top >> 4 : top) & 0x0f0f0f0fu;
    eight |= eight >> 12;
    for (int k = 0; k < 2; ++k) {
      const LevelLanes apart = reinterpret_cast<LevelLanes>(spread(reinterpret_cast<Simd::F>(eight), k)) & 0x00cc0033u;
      const LevelLanes third = reinterpret_cast<LevelLanes>(reinterpret_cast<LevelHalves>(apart) * moves) & 0x44444444u;
      const auto word = reinterpret_cast<LevelLanes>(words[h]);
      joined[2 * h + k] = reinterpret_cast<Simd::F>(((k ? word >> 2 : word) & 0x33333333u) | third);
    }
  }
}

}  // namespace
}  // namespace millrace
