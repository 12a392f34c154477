// Scalar readers of one row of the KV formats, for the reference attention. A row holds head_dim values
// rounded up to whole blocks; decode() gives values [begin, begin + n) of it, begin a multiple of 32.
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

}  // namespace millrace::ref
