// Format: a stored number format, for weights and for keys and values. It has block sizes and a scalar codec; fast
// paths are in kernels/. Each format is one file and one line in builtin.cc. Names must not change, because files and
// flags contain them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/registry.h"

namespace millrace {

// How linear() rounds its input rows before it multiplies them by a weight of this format. It is part of the format's
// numeric definition, the same on every instruction set. kernels/activation.h defines the layout.
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
  int gguf_type;                 // ggml type id in GGUF files (frozen); -1: not stored in GGUF
  std::string_view safetensors;  // dtype in safetensors headers ("BF16", "F8_E4M3"); empty: none
  int block_values;              // values of a block, along a row; a row has whole blocks
  int block_bytes;
  Activation activation;

  // Decodes n values, a multiple of block_values. Accepts any bytes without reading out of bounds.
  void (*decode)(const uint8_t* source, float* destination, int64_t n);
  // Encodes n values by plain rounding: to nearest, with a simple scale for each block. Infinite input is clamped; NaN
  // becomes 0.
  void (*encode)(const float* source, uint8_t* destination, int64_t n);
  // Returns the index of the first block whose scale (or value, for plain floats) is NaN or infinite; -1: none. Null if
  // the format cannot represent such values.
  int64_t (*find_non_finite)(const uint8_t* source, int64_t n);
  // For quantizers that choose levels themselves, in formats with levels under scales. set_level() stores one value's
  // level, 0 .. levels - 1, and does not change the block's scales and other values. 0 and null: the format has no
  // levels.
  int levels = 0;
  void (*set_level)(uint8_t* block, int value, int level) = nullptr;
  // Maximum magnitude in blocks, for formats whose matrices have one f32 scale in addition to the scales of blocks
  // (Weight::scales). The scale maps the largest magnitude of a matrix to it. 0: no such scale.
  float matrix_limit = 0;

  int64_t row_bytes(int64_t values) const { return values / block_values * block_bytes; }
  double bits_per_value() const { return 8.0 * block_bytes / block_values; }
};

// Every built-in format, in a fixed order.
const Registry<const Format*>& formats();
const Format* find_format(std::string_view name);  // "q4_0"; null if unknown
const Format* find_format_gguf(int gguf_type);     // null if unknown
const Format* find_format_safetensors(std::string_view dtype);

// Formats of matrices with a codebook: bytes of indices, without a codec. They are not in formats(). Kernels multiply
// tables of at most 16 single weights (table16_indices) and words of eight weights (codeword_indices) directly.
// Matrices with other codebooks (codebook_indices) are multiplied as Q8_0.
const Format& codebook_indices();
const Format& table16_indices();
const Format& codeword_indices();

}  // namespace millrace
