// Vector readers of the KV formats. Include after simd_avx2.h or simd_avx512.h. decode() expands the first
// n values of a row of whole blocks; it reads no byte outside the row and writes values rounded up to 32.
#pragma once

#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

struct KvF32 {
  static constexpr const char* kName = "f32";
  static void decode(const uint8_t* row, float* out, int64_t n) {
    std::memcpy(out, row, static_cast<size_t>(n) * sizeof(float));
  }
};

// 16-bit formats: whole vectors, then the tail through a padded copy.
template <Simd::F (*kLoad)(const uint8_t*)>
inline void decode_16_bit(const uint8_t* row, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + Simd::kLanes <= n; i += Simd::kLanes) Simd::store(out + i, kLoad(row + i * 2));
  if (i < n) {
    uint8_t rest[2 * Simd::kLanes] = {};
    std::memcpy(rest, row + i * 2, static_cast<size_t>(n - i) * 2);
    Simd::store(out + i, kLoad(rest));
  }
}

struct KvF16 {
  static constexpr const char* kName = "f16";
  static void decode(const uint8_t* row, float* out, int64_t n) { decode_16_bit<Simd::load_f16>(row, out, n); }
};

struct KvBf16 {
  static constexpr const char* kName = "bf16";
  static void decode(const uint8_t* row, float* out, int64_t n) { decode_16_bit<Simd::load_bf16>(row, out, n); }
};

// Blocks of 32 values in 34 bytes: f16 scale, then 32 int8. The last block is expanded whole.
struct KvQ8 {
  static constexpr const char* kName = "q8_0";
  static void decode(const uint8_t* row, float* out, int64_t n) {
    for (int64_t i = 0; i < n; i += 32, row += 34) {
      const Simd::F scale = Simd::set(Simd::f16(row));
      for (int64_t j = 0; j < 32; j += Simd::kLanes) {
        Simd::store(out + i + j, Simd::mul(scale, Simd::load_i8(row + 2 + j)));
      }
    }
  }
};

}  // namespace
}  // namespace millrace
