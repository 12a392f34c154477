// Converts levels to the unsigned bytes that are multiplied (attention_byte_levels.h). Include after
// attention_byte_level_units.h.
//
// A unit (AffineRows) has eight bytes with the levels' lower bits, at 2 or 4 places in each byte, called shifts. With 3
// bits, four bytes with the top bits follow: bit j of byte k belongs to the level at place k of byte j.
#pragma once

#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

template <int kBits>
struct ByteUnit {
  static constexpr int kStep = kBits == 4 ? 4 : 2;  // number of adjacent bits in a byte that belong to a level
  static constexpr int kShifts = 8 / kStep;
  static constexpr int64_t kDims = affine_unit_values(kBits);
  static constexpr int64_t kBytes = affine_unit_bytes(kBits);
  static int64_t count(int64_t dims) { return (dims + kDims - 1) / kDims; }
  static int64_t columns(int64_t dims) { return (dims + 2 * kDims - 1) / (2 * kDims); }
};

// The lower bits of 64 levels at each place, and their top bits. Top bits of keys: every lane has a token's four bytes.
// Top bits of values: dword 4 u + k has byte k of unit u of four tokens.
struct LevelBits {
  __m512i low, top;
};

template <int kBits>
inline __m512i low_bits(__m512i low, int shift) {
  constexpr int kStep = ByteUnit<kBits>::kStep;
  return _mm512_and_si512(_mm512_srli_epi32(low, static_cast<unsigned>(shift * kStep)),
                          _mm512_set1_epi8((1 << kStep) - 1));
}

// Levels that no table replaces. For one row, they are multiplied at their places in the bytes, and the sums are
// shifted once.
template <int kLevelBits>
struct PlainLevels {
  static constexpr int kBits = kLevelBits;
  static_assert(kBits == 2 || kBits == 4);
  explicit PlainLevels(const LevelTiles&) {}

  static constexpr float offset = 0;
  __m512i key(const LevelBits& bits, int /*half*/, int shift) const { return low_bits<kBits>(bits.low, shift); }
  __m512i value(const LevelBits& bits, int shift) const { return low_bits<kBits>(bits.low, shift); }
  __m512i lone_key(const LevelBits& bits, int /*half*/, int shift) const { return in_place(bits.low, shift); }
  __m512i lone_value(const LevelBits& bits, int shift) const { return in_place(bits.low, shift); }
  static __m512i lone_sum(__m512i sum, int shift) {
    return _mm512_srai_epi32(sum, static_cast<unsigned>(shift * kBits));
  }

 private:
  static __m512i in_place(__m512i low, int shift) {
    return _mm512_and_si512(low, _mm512_set1_epi8(static_cast<char>(((1 << kBits) - 1) << (shift * kBits))));
  }
};

// Levels of 3 bits, and levels that a table replaces (LevelTiles::codes). They are looked up.
template <int kLevelBits>
class CodedLevels {
 public:
  static constexpr int kBits = kLevelBits;
  explicit CodedLevels(const LevelTiles& tiles) : offset(tiles.codes ? -kOffset : 0) {
    alignas(16) uint8_t bytes[16];
    for (int i = 0; i < 16; ++i)
      bytes[i] = static_cast<uint8_t>(tiles.codes ? static_cast<int>(tiles.codes[i]) + kOffset : i);
    table_ = _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes)));
  }

  const float offset;  // a code is its byte plus this
  __m512i key(const LevelBits& bits, int half, int shift) const {
    if constexpr (kBits != 3) return look_up(low_bits<kBits>(bits.low, shift));
    const __m512i token = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
    const __m512i order = _mm512_add_epi8(token, _mm512_set1_epi8(static_cast<char>(shift)));
    const __m512i places = _mm512_set1_epi32(half == 0 ? 0x08040201 : static_cast<int>(0x80402010));
    return with_top_bits(bits, shift, _mm512_shuffle_epi8(bits.top, order), places);
  }
  __m512i value(const LevelBits& bits, int shift) const {
    if constexpr (kBits != 3) return look_up(low_bits<kBits>(bits.low, shift));
    const __m512i units = _mm512_set1_epi64((int64_t{4} + shift) << 32 | shift);
    const __m512i places = _mm512_setr_epi64(0x0101010101010101, 0x0202020202020202, 0x0404040404040404,
                                             0x0808080808080808, 0x1010101010101010, 0x2020202020202020,
                                             0x4040404040404040, static_cast<int64_t>(0x8080808080808080));
    return with_top_bits(bits, shift, _mm512_permutexvar_epi32(units, bits.top), places);
  }
  __m512i lone_key(const LevelBits& bits, int half, int shift) const { return key(bits, half, shift); }
  __m512i lone_value(const LevelBits& bits, int shift) const { return value(bits, shift); }
  static __m512i lone_sum(__m512i sum, int /*shift*/) { return sum; }

 private:
  static constexpr int kOffset = kMaxCode + 1;

  __m512i look_up(__m512i levels) const { return _mm512_shuffle_epi8(table_, levels); }
  // Adds the top bit to each level whose byte in `tops` has the bit of `places`.
  __m512i with_top_bits(const LevelBits& bits, int shift, __m512i tops, __m512i places) const {
    const __m512i low = low_bits<kBits>(bits.low, shift);
    const __mmask64 set = _mm512_test_epi8_mask(tops, places);
    return look_up(_mm512_mask_add_epi8(low, set, low, _mm512_set1_epi8(4)));
  }

  __m512i table_;
};

}  // namespace
}  // namespace millrace
