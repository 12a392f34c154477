// Format: one stored number format, for weights and for KV. Geometry plus a scalar codec; fast paths are in kernels/.
// One file per format plus one line in builtin.cc; names are persistent (files, flags).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/registry.h"

namespace millrace {

// How linear() rounds its input rows before multiplying by a weight of this format. Part of the numeric definition (the
// same on every instruction set); kernels/activation.h defines the layout.
//   f32       unchanged
//   bf16      rounded to bfloat16, products summed in f32
//   q8        int8 in groups of 32 with one f32 scale = max|x| / 127, exact integer dot products per group;
//             for weights of 8 bits
//   q8_shift  int8 in groups of 32 with a power of two as scale, times one f32 for the whole row: half a multiplication
//             less, and at most twice the rounding error of q8, negligible next to that of weights of 6 bits and fewer
enum class Activation : uint8_t { f32, bf16, q8, q8_shift };
inline constexpr Activation kActivations[] = {Activation::f32, Activation::bf16, Activation::q8, Activation::q8_shift};

constexpr bool is_int8(Activation kind) { return kind == Activation::q8 || kind == Activation::q8_shift; }

struct Format {
  std::string_view name;     // "q4_0"
  std::string_view summary;  // one line for `millrace techniques`
  std::string_view paper = {};
  Loss loss = Loss::lossy;
  int gguf_type;                 // ggml type id in GGUF files (frozen), -1: not stored in GGUF
  std::string_view safetensors;  // dtype in safetensors headers ("BF16", "F8_E4M3"), empty: none
  int block_values;              // values per block along a row; a row is whole blocks
  int block_bytes;
  Activation activation;

  // n is a multiple of block_values. Accepts any bytes (never reads out of bounds).
  void (*decode)(const uint8_t* source, float* destination, int64_t n);
  // Plain rounding (round to nearest with each block's own simple scale). Non-finite input is clamped or zeroed.
  void (*encode)(const float* source, uint8_t* destination, int64_t n);
  // Index of the first block whose scale (or value, for plain floats) is NaN or infinite, -1 if none;
  // null: cannot hold one.
  int64_t (*find_non_finite)(const uint8_t* source, int64_t n);
  // Formats of levels under scales, for quantizers that choose levels themselves: the number of levels, and a function
  // that stores one value's level (0 .. levels - 1) and leaves the block's scales and other values alone. 0 and null:
  // none.
  int levels = 0;
  void (*set_level)(uint8_t* block, int value, int level) = nullptr;
  // For formats whose matrices have one f32 scale in addition to the scales of blocks (Weight::scales): the largest
  // magnitude that blocks hold. The scale brings the largest magnitude of a matrix to it. 0: none.
  float matrix_limit = 0;

  int64_t row_bytes(int64_t values) const { return values / block_values * block_bytes; }
  double bits_per_value() const { return 8.0 * block_bytes / block_values; }
};

// Every built-in format, in a fixed order.
const Registry<const Format*>& formats();
const Format* find_format(std::string_view name);  // "q4_0"; null if unknown
const Format* find_format_gguf(int gguf_type);     // null if unknown
const Format* find_format_safetensors(std::string_view dtype);

// Format of matrices with a codebook: bytes of indices, without a codec. Not a member of formats(). Kernels multiply
// tables of at most 16 single weights, and words of eight weights; other codebooks, codebook_indices(), are multiplied
// as Q8_0.
const Format& codebook_indices();
const Format& table16_indices();
const Format& codeword_indices();

}  // namespace millrace
