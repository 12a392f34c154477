// 32 bytes in two registers of NEON, with the operations of x86/bytes32_avx2.h.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace millrace {
namespace {

struct Bytes32 {
  uint8x16_t a, b;

  static Bytes32 load(const uint8_t* p) { return {vld1q_u8(p), vld1q_u8(p + 16)}; }
  static Bytes32 set(int v) { return {vdupq_n_u8(static_cast<uint8_t>(v)), vdupq_n_u8(static_cast<uint8_t>(v))}; }
  void store(uint8_t* p) const {
    vst1q_u8(p, a);
    vst1q_u8(p + 16, b);
  }
  Bytes32 operator&(Bytes32 o) const { return {vandq_u8(a, o.a), vandq_u8(b, o.b)}; }
  Bytes32 operator|(Bytes32 o) const { return {vorrq_u8(a, o.a), vorrq_u8(b, o.b)}; }
  // Shift pairs of bytes. Callers must mask the bits that are shifted in from the neighbouring byte.
  template <int kBits>
  Bytes32 right() const {
    const auto one = [](uint8x16_t v) { return vreinterpretq_u8_u16(vshrq_n_u16(vreinterpretq_u16_u8(v), kBits)); };
    return {one(a), one(b)};
  }
  template <int kBits>
  Bytes32 left() const {
    const auto one = [](uint8x16_t v) { return vreinterpretq_u8_u16(vshlq_n_u16(vreinterpretq_u16_u8(v), kBits)); };
    return {one(a), one(b)};
  }
};

}  // namespace
}  // namespace millrace
