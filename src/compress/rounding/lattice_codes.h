// The formats whose codes stand for eight weights together, as passes that choose the codes themselves see them.
#pragma once

#include <cstdint>
#include <span>

namespace millrace {

struct Format;

// Blocks of 256 weights: value = scale of the block * unit * whole number. Codes are found by the weights as parts of
// the lattice's scale, which is the block's times `lattice`.
struct LatticeCode {
  int block_bytes = 0;
  float unit = 1;
  float lattice = 1;
  // Scales of the lattice as parts of the root of the mean square of the weights. Smaller scales would be best without
  // errors to compensate; compensation makes the targets larger.
  std::span<const float> tries;
  uint32_t (*nearest)(const float* x) = nullptr;
  void (*numbers)(uint32_t code, int8_t* out) = nullptr;  // [8]
  uint32_t (*load)(const uint8_t* block, int point) = nullptr;
  void (*store)(uint8_t* block, int point, uint32_t code) = nullptr;
};

// Null: the format is no lattice's.
const LatticeCode* find_lattice(const Format& format);

}  // namespace millrace
