// The formats in which one code represents eight weights, for passes that choose the codes.
#pragma once

#include <cstdint>
#include <span>

namespace millrace {

struct Format;

// Describes a format with blocks of 256 weights: value = scale of the block * `unit` * whole number. nearest() takes
// weights divided by the lattice's scale, which is the block's scale times `lattice`.
struct LatticeCode {
  int block_bytes = 0;
  float unit = 1;
  float lattice = 1;
  // Scales of the lattice to try, as fractions of the weights' root mean square. Without error compensation, smaller
  // scales would be better; compensation makes the targets larger.
  std::span<const float> tries;
  uint32_t (*nearest)(const float* x) = nullptr;
  void (*numbers)(uint32_t code, int8_t* out) = nullptr;  // [8]
  uint32_t (*load)(const uint8_t* block, int point) = nullptr;
  void (*store)(uint8_t* block, int point, uint32_t code) = nullptr;
};

// Returns null if the format has no such codes.
const LatticeCode* find_lattice(const Format& format);

}  // namespace millrace
