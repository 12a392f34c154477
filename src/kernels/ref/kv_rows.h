// Scalar readers of one row of the KV formats, for the reference attention. A row holds head_dim values, padded to
// whole blocks. decode() returns values [begin, begin + n); begin is a multiple of 32.
#pragma once

#include <cstdint>
#include <cstring>

#include "tensor/half.h"

namespace millrace::ref {

struct KvF32 {
  static constexpr const char* kName = "f32";
  static void decode(const uint8_t* row, int64_t begin, int64_t n, float* out) noexcept {
    std::memcpy(out, row + begin * 4, static_cast<size_t>(n) * 4);
  }
};

template <float (*kConvert)(uint16_t)>
void decode_16_bit(const uint8_t* row, int64_t begin, int64_t n, float* out) noexcept {
  for (int64_t i = 0; i < n; ++i) {
    uint16_t bits;
    std::memcpy(&bits, row + (begin + i) * 2, 2);
    out[i] = kConvert(bits);
  }
}

struct KvF16 {
  static constexpr const char* kName = "f16";
  static void decode(const uint8_t* row, int64_t begin, int64_t n, float* out) noexcept {
    decode_16_bit<f16_to_f32>(row, begin, n, out);
  }
};

struct KvBf16 {
  static constexpr const char* kName = "bf16";
  static void decode(const uint8_t* row, int64_t begin, int64_t n, float* out) noexcept {
    decode_16_bit<bf16_to_f32>(row, begin, n, out);
  }
};

// Blocks of 32 values in 34 bytes: f16 scale, then 32 int8.
struct KvQ8 {
  static constexpr const char* kName = "q8_0";
  static void decode(const uint8_t* row, int64_t begin, int64_t n, float* out) noexcept {
    for (int64_t i = 0; i < n; ++i) {
      const uint8_t* block = row + (begin + i) / 32 * 34;
      uint16_t scale;
      std::memcpy(&scale, block, 2);
      out[i] = f16_to_f32(scale) * static_cast<float>(static_cast<int8_t>(block[2 + (begin + i) % 32]));
    }
  }
};

// Returns level j of a block of 32 values whose nibbles are in 16 bytes: byte j has value j in its low half and value j
// + 16 in its high half.
inline int nibble_level(const uint8_t* nibbles, int64_t j) noexcept { return nibbles[j % 16] >> (j / 16 * 4) & 15; }

inline float block_f16(const uint8_t* at) noexcept {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return f16_to_f32(bits);
}

struct KvQ40 {
  static constexpr const char* kName = "q4_0";
  static void decode(const uint8_t* row, int64_t begin, int64_t n, float* out) noexcept {
    for (int64_t i = 0; i < n; ++i) {
      const uint8_t* block = row + (begin + i) / 32 * 18;
      out[i] = block_f16(block) * static_cast<float>(nibble_level(block + 2, (begin + i) % 32) - 8);
    }
  }
};

struct KvQ41 {
  static constexpr const char* kName = "q4_1";
  static void decode(const uint8_t* row, int64_t begin, int64_t n, float* out) noexcept {
    for (int64_t i = 0; i < n; ++i) {
      const uint8_t* block = row + (begin + i) / 32 * 20;
      const auto level = static_cast<float>(nibble_level(block + 4, (begin + i) % 32));
      out[i] = block_f16(block) * level + block_f16(block + 2);
    }
  }
};

struct KvQ50 {
  static constexpr const char* kName = "q5_0";
  static void decode(const uint8_t* row, int64_t begin, int64_t n, float* out) noexcept {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t j = (begin + i) % 32;
      const uint8_t* block = row + (begin + i) / 32 * 22;
      const int fifth = block[2 + j / 8] >> (j % 8) & 1;
      out[i] = block_f16(block) * static_cast<float>((nibble_level(block + 6, j) | fifth << 4) - 16);
    }
  }
};

// Finite 8-bit floats with 4 exponent and 3 mantissa bits: 2^8 times the f16 with the same bits.
struct KvF8 {
  static constexpr const char* kName = "f8_e4m3";
  static void decode(const uint8_t* row, int64_t begin, int64_t n, float* out) noexcept {
    for (int64_t i = 0; i < n; ++i) {
      const uint8_t byte = row[begin + i];
      out[i] = 256.0f * f16_to_f32(static_cast<uint16_t>((byte & 0x80) << 8 | (byte & 0x7f) << 7));
    }
  }
};

}  // namespace millrace::ref
