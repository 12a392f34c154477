// 32 bytes in a register of AVX2, for the sources that all instruction sets share.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace millrace {
namespace {

struct Bytes32 {
  __m256i v;

  static Bytes32 load(const uint8_t* p) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))}; }
  static Bytes32 set(int v) { return {_mm256_set1_epi8(static_cast<char>(v))}; }
  void store(uint8_t* p) const { _mm256_store_si256(reinterpret_cast<__m256i*>(p), v); }  // aligned
  Bytes32 operator&(Bytes32 o) const { return {_mm256_and_si256(v, o.v)}; }
  Bytes32 operator|(Bytes32 o) const { return {_mm256_or_si256(v, o.v)}; }
  // Shift pairs of bytes. Callers must mask the bits that are shifted in from the neighbouring byte.
  template <int kBits>
  Bytes32 right() const {
    return {_mm256_srli_epi16(v, kBits)};
  }
  template <int kBits>
  Bytes32 left() const {
    return {_mm256_slli_epi16(v, kBits)};
  }
};

}  // namespace
}  // namespace millrace
