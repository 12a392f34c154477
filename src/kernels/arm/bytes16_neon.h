// 16 bytes in a register of NEON: what the packers need. x86/bytes16_sse2.h has the same.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace millrace {
namespace {

using Bytes16 = uint8x16_t;

inline Bytes16 load(const void* p) { return vld1q_u8(static_cast<const uint8_t*>(p)); }
inline void store(void* p, Bytes16 v) { vst1q_u8(static_cast<uint8_t*>(p), v); }
inline void store_half(void* p, Bytes16 v) { vst1_u8(static_cast<uint8_t*>(p), vget_low_u8(v)); }
inline uint32_t first_word(Bytes16 v) { return vgetq_lane_u32(vreinterpretq_u32_u8(v), 0); }
inline Bytes16 set_word(uint32_t word) {  // the others are 0
  return vreinterpretq_u8_u32(vsetq_lane_u32(word, vdupq_n_u32(0), 0));
}
inline Bytes16 set_bytes(int v) { return vdupq_n_u8(static_cast<uint8_t>(v)); }
inline Bytes16 set_quads(uint64_t v) { return vreinterpretq_u8_u64(vdupq_n_u64(v)); }
inline Bytes16 bits_and(Bytes16 a, Bytes16 b) { return vandq_u8(a, b); }
inline Bytes16 bits_or(Bytes16 a, Bytes16 b) { return vorrq_u8(a, b); }
inline Bytes16 bits_xor(Bytes16 a, Bytes16 b) { return veorq_u8(a, b); }
inline Bytes16 equal_bytes(Bytes16 a, Bytes16 b) { return vceqq_u8(a, b); }
// Shifts of pairs of bytes.
inline Bytes16 shift_left(Bytes16 v, int bits) {
  return vreinterpretq_u8_u16(vshlq_u16(vreinterpretq_u16_u8(v), vdupq_n_s16(static_cast<int16_t>(bits))));
}
inline Bytes16 shift_right(Bytes16 v, int bits) { return shift_left(v, -bits); }
template <int kBytes>
inline Bytes16 without_first(Bytes16 v) {
  return vextq_u8(v, vdupq_n_u8(0), kBytes);
}
// The values of the low or high halves of a and b in turns.
inline Bytes16 low8(Bytes16 a, Bytes16 b) { return vzip1q_u8(a, b); }
inline Bytes16 low16(Bytes16 a, Bytes16 b) {
  return vreinterpretq_u8_u16(vzip1q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
}
inline Bytes16 high16(Bytes16 a, Bytes16 b) {
  return vreinterpretq_u8_u16(vzip2q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
}
inline Bytes16 low32(Bytes16 a, Bytes16 b) {
  return vreinterpretq_u8_u32(vzip1q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
}
inline Bytes16 high32(Bytes16 a, Bytes16 b) {
  return vreinterpretq_u8_u32(vzip2q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
}
inline Bytes16 low64(Bytes16 a, Bytes16 b) {
  return vreinterpretq_u8_u64(vzip1q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
}
inline Bytes16 high64(Bytes16 a, Bytes16 b) {
  return vreinterpretq_u8_u64(vzip2q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
}

}  // namespace
}  // namespace millrace
