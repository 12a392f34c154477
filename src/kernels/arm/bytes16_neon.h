// 16 bytes in a register of NEON: the operations that the packers need. x86/bytes16_sse2.h has them for x86.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

struct Bytes16 {
  using Bytes = uint8x16_t;

  static constexpr int kRows = 1;

  static Bytes load_rows(const uint8_t* first, int64_t /*stride*/) { return vld1q_u8(first); }
  // Loads four bytes of a row, followed by zeros.
  static Bytes load_words(const uint8_t* first, int64_t /*stride*/) {
    uint32_t word;
    std::memcpy(&word, first, 4);
    return vreinterpretq_u8_u32(vsetq_lane_u32(word, vdupq_n_u32(0), 0));
  }
  static void store(uint8_t* p, Bytes v) { vst1q_u8(p, v); }
  static Bytes set_bytes(int v) { return vdupq_n_u8(static_cast<uint8_t>(v)); }
  static Bytes set_quads(uint64_t v) { return vreinterpretq_u8_u64(vdupq_n_u64(v)); }
  static Bytes bits_and(Bytes a, Bytes b) { return vandq_u8(a, b); }
  static Bytes bits_or(Bytes a, Bytes b) { return vorrq_u8(a, b); }
  static Bytes bits_xor(Bytes a, Bytes b) { return veorq_u8(a, b); }
  static Bytes equal_bytes(Bytes a, Bytes b) { return vceqq_u8(a, b); }
  // Shift pairs of bytes (16 bits).
  static Bytes shift_left(Bytes v, int bits) {
    return vreinterpretq_u8_u16(vshlq_u16(vreinterpretq_u16_u8(v), vdupq_n_s16(static_cast<int16_t>(bits))));
  }
  static Bytes shift_right(Bytes v, int bits) { return shift_left(v, -bits); }
  template <int kBytes>
  static Bytes without_first(Bytes v) {
    return vextq_u8(v, vdupq_n_u8(0), kBytes);
  }
  // Interleave the values of the low or high halves of a and b.
  static Bytes low8(Bytes a, Bytes b) { return vzip1q_u8(a, b); }
  static Bytes low16(Bytes a, Bytes b) {
    return vreinterpretq_u8_u16(vzip1q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
  }
  static Bytes high16(Bytes a, Bytes b) {
    return vreinterpretq_u8_u16(vzip2q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
  }
  static Bytes low32(Bytes a, Bytes b) {
    return vreinterpretq_u8_u32(vzip1q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
  }
  static Bytes high32(Bytes a, Bytes b) {
    return vreinterpretq_u8_u32(vzip2q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
  }
  static Bytes low64(Bytes a, Bytes b) {
    return vreinterpretq_u8_u64(vzip1q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
  }
  static Bytes high64(Bytes a, Bytes b) {
    return vreinterpretq_u8_u64(vzip2q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
  }
};

}  // namespace
}  // namespace millrace
