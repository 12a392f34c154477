// Loads stored rows of levels as the unsigned bytes that are multiplied (attention_byte_rows.h). Include after
// attention_bf16.h.
//
// Every format has blocks of 32 values. A block of four tokens is loaded as two halves, each with 16 values of every
// token:
//
//   keys     [4 tokens][16 values]    lane 4 t + i: values 4 i to 4 i + 3 of token t
//   values   [16 values][4 tokens]    a lane per value
//
// A value is scale * (level - kCentre), or scale * level + minimum.
#pragma once

#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

constexpr int64_t kRowBlock = 32;                                      // values
constexpr int64_t kMaxRowBlocks = (kBf16MaxHeadDim / 32 + 3) / 4 * 4;  // blocks of a row, with room for four at a time

struct LevelHalvesOfFour {
  __m512i first, last;  // values 0 to 15, and 16 to 31
};

// Loads 16 bytes of each of four tokens, at offset `at` of their rows.
inline __m512i load_four_tokens(const uint8_t* const (&token)[4], int64_t at) {
  const auto one = [&](int t) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(token[t] + at)); };
  const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(one(0)), one(1), 1);
  const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(one(2)), one(3), 1);
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// Transposes [4 tokens][16 bytes] to [16 bytes][4 tokens].
inline __m512i turn_four_tokens(__m512i tokens) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i places = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  return _mm512_shuffle_epi8(_mm512_permutexvar_epi32(order, tokens), places);
}

template <bool kTurned>
inline __m512i turn_four_tokens_if(__m512i tokens) {
  if constexpr (kTurned) return turn_four_tokens(tokens);
  return tokens;
}

inline LevelHalvesOfFour split_nibbles(__m512i nibbles) {
  const __m512i mask = _mm512_set1_epi8(15);
  return {_mm512_and_si512(nibbles, mask), _mm512_and_si512(_mm512_srli_epi16(nibbles, 4), mask)};
}

// Rows of blocks of KvNibbles.
template <typename Kv>
struct NibbleRows {
  static constexpr int64_t kBytes = Kv::kBytes;
  static constexpr bool kMinimum = Kv::kFifthAt == 4, kFifth = Kv::kLevelsAt > Kv::kFifthAt;
  static constexpr int kCentre = kMinimum ? 0 : kFifth ? 16 : 8;

  template <bool kTurned>
  static LevelHalvesOfFour load(const uint8_t* const (&token)[4], int64_t block) {
    const int64_t at = block * kBytes;
    const __m512i nibbles = load_four_tokens(token, at + Kv::kLevelsAt);
    if constexpr (!kFifth) {
      return split_nibbles(turn_four_tokens_if<kTurned>(nibbles));
    } else {
      LevelHalvesOfFour levels = split_nibbles(nibbles);
      const __m512i fifths = load_fifths(token, at + Kv::kFifthAt);
      levels.first = turn_four_tokens_if<kTurned>(with_fifths(levels.first, fifths, 0));
      levels.last = turn_four_tokens_if<kTurned>(with_fifths(levels.last, fifths, 2));
      return levels;
    }
  }

 private:
  // Loads four bytes of each token, repeated four times.
  static __m512i load_fifths(const uint8_t* const (&token)[4], int64_t at) {
    int32_t word[4];
    for (int t = 0; t < 4; ++t) std::memcpy(&word[t], token[t] + at, sizeof word[t]);
    const __m512i all = _mm512_castsi128_si512(_mm_setr_epi32(word[0], word[1], word[2], word[3]));
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3), all);
  }
  // Adds the fifth bits of 16 values, which begin at byte `from` of the four.
  static __m512i with_fifths(__m512i levels, __m512i fifths, int from) {
    const __m512i bytes =
        _mm512_add_epi8(_mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1)),
                        _mm512_set1_epi8(static_cast<char>(from)));
    const __m512i bits = _mm512_set1_epi64(static_cast<int64_t>(0x8040201008040201));
    const __mmask64 set = _mm512_test_epi8_mask(_mm512_shuffle_epi8(fifths, bytes), bits);
    return _mm512_mask_add_epi8(levels, set, levels, _mm512_set1_epi8(16));
  }
};

struct ByteRows {  // rows of KvQ8
  static constexpr int64_t kBytes = 34;
  static constexpr bool kMinimum = false;
  static constexpr int kCentre = 128;

  template <bool kTurned>
  static LevelHalvesOfFour load(const uint8_t* const (&token)[4], int64_t block) {
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    const auto half = [&](int64_t at) {
      return turn_four_tokens_if<kTurned>(_mm512_xor_si512(load_four_tokens(token, block * kBytes + at), sign));
    };
    return {half(2), half(18)};
  }
};

// Loads the scales or minima (f16 at offset `at` of each block) of 16 tokens, from `first_token` on, as f32. Blocks are
// read kPerLoad at a time, so entries beyond the last block are also written.
template <typename Row>
void load_row_scales(const uint8_t* const* rows, int64_t first_token, int64_t blocks, int64_t at,
                     float (*scale)[kAttentionPartition]) {
  constexpr int64_t kPerLoad = 3 * Row::kBytes + 4 <= 64 ? 4 : 2, kWords = Row::kBytes / 2;
  constexpr int kTokens = 32 / kPerLoad;  // number of tokens in a vector of f16
  static_assert(Row::kBytes % 2 == 0);
  alignas(64) uint16_t order[32];
  for (int i = 0; i < 32; ++i) order[i] = static_cast<uint16_t>(i / kTokens * kWords);
  const __m512i places = _mm512_load_si512(order);
  constexpr uint32_t kEach = kPerLoad == 4 ? 0x01010101u : 0x00010001u;
  for (int64_t block = 0; block < blocks; block += kPerLoad) {
    const int64_t count = blocks - block < kPerLoad ? blocks - block : kPerLoad;
    const auto stored = static_cast<__mmask32>((uint64_t{2} << ((count - 1) * kWords)) - 1);
    for (int first = 0; first < 16; first += kTokens) {
      __m512i halves = _mm512_setzero_si512();
#pragma GCC unroll 16
      for (int t = 0; t < kTokens; ++t) {
        const uint8_t* const token = rows[first_token + first + t] + block * Row::kBytes + at;
        const __m512i row = _mm512_maskz_loadu_epi16(stored, token);
        halves = _mm512_mask_permutexvar_epi16(halves, kEach << t, places, row);
      }
      float* const out = scale[block] + first_token + first;
      if constexpr (kPerLoad == 4) {
        _mm256_store_ps(out, _mm256_cvtph_ps(_mm512_castsi512_si128(halves)));
        _mm256_store_ps(out + kAttentionPartition, _mm256_cvtph_ps(_mm512_extracti32x4_epi32(halves, 1)));
        _mm256_store_ps(out + 2 * kAttentionPartition, _mm256_cvtph_ps(_mm512_extracti32x4_epi32(halves, 2)));
        _mm256_store_ps(out + 3 * kAttentionPartition, _mm256_cvtph_ps(_mm512_extracti32x4_epi32(halves, 3)));
      } else {
        _mm512_store_ps(out, _mm512_cvtph_ps(_mm512_castsi512_si256(halves)));
        _mm512_store_ps(out + kAttentionPartition, _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1)));
      }
    }
  }
}

}  // namespace
}  // namespace millrace
