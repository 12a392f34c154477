// Scratch and look-up of levels as 16-bit words, for attention over keys that are stored before RoPE.
// attention_word_levels.h explains the arithmetic. Include after attention_level_units.h.
#pragma once

#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

constexpr int64_t kMaxPairs = kMaxTilesHeadDim / 2;
constexpr int64_t kMaxKeyTokens = 128;  // maximum number of tokens that share the scales of a column
constexpr int64_t kPlaces = kAttentionPartition / kSharedTokens;
constexpr int64_t kWordStep = 8;       // number of tokens whose values are multiplied at a time
constexpr int64_t kStepVectors = 8;    // number of vectors of values in a step, for each 32 dims
constexpr float kLargestWord = 32000;  // largest word of a query or a weight
constexpr float kLargestKey = 16384;   // largest word of a key; a rotation increases it to at most 23170
constexpr float kMaxQuery = 85000;     // maximum sum of the lengths of a query's pairs; times 23170, it fits 32 bits
constexpr float kMaxWeight = 260000;   // maximum sum of weights; times kCodeOne, it fits 32 bits
constexpr float kCodeOne = 8192;       // the word that represents a code of 1 in values

// Keys of 32 tokens before they are rotated.
struct TokenChannels {
  alignas(64) int16_t word[kMaxTilesHeadDim][kSharedTokens];
};

struct WordScratch : TileScratch {
  TokenChannels channels[kMaxKeyTokens / kSharedTokens];                   // keys that share scales
  alignas(64) uint8_t keys[kAttentionPartition * kMaxTilesHeadDim * 2];    // [32 tokens][pair][2][16 tokens][x, y]
  alignas(64) uint8_t values[kAttentionPartition * kMaxTilesHeadDim * 2];  // [32 dims][8 tokens][vector]
  alignas(64) float turn[kPlaces][2][kMaxPairs];  // rotation of the first token of each 32: cos, sin
  alignas(64) float query_x[kBlockRows][kMaxPairs], query_y[kBlockRows][kMaxPairs];
  alignas(64) int32_t query[kBlockRows][kMaxPairs];  // words x, y of the queries, rotated for 32 tokens
  float query_unit[kBlockRows], key_unit[kPlaces];   // value of the integer 1
  // Each word is stored in both halves.
  alignas(64) int32_t scale_words[kMaxTilesHeadDim], zero_words[kMaxTilesHeadDim];
  alignas(64) float value_scale[kAttentionPartition], value_zero[kAttentionPartition];
  alignas(64) uint8_t weight[kBlockRows][kAttentionPartition / kWordStep * 64];
  float weight_unit[kBlockRows], weight_rest[kBlockRows];
  // Terms that outliers add to the levels of each token.
  alignas(64) float excess[kMaxOutliers][kAttentionPartition];
  alignas(64) int32_t excess_dim[kMaxOutliers][kAttentionPartition];
  alignas(64) float token_weight[kAttentionPartition][16];  // [row]; for one row: [token] without gaps
  alignas(64) float excess_sum[2][kMaxTilesHeadDim][16];    // sums of even and of odd tokens
};

template <int kBits>
struct WordUnit {
  static constexpr int kStep = kBits == 4 ? 4 : 2;  // bits that are adjacent in a byte
  static constexpr int kShifts = 8 / kStep;
  static constexpr int64_t kDims = affine_unit_values(kBits);
  static constexpr int64_t kBytes = affine_unit_bytes(kBits);
  static constexpr int64_t kUnits = kBits == 3 ? 1 : 2;  // number of units in the 16 bytes that are loaded at a time
};

// Returns a table of codes times `one`, repeated, so that look_up_words() needs a level only in the lowest bits of a
// word; other bits have no effect.
template <int kBits>
inline __m512i code_words(const float* codes, float one) {
  const __m512i order = _mm512_and_si512(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                         _mm512_set1_epi32((1 << kBits) - 1));
  const __m512 repeated = _mm512_permutexvar_ps(order, _mm512_loadu_ps(codes));
  const __m256i words = _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(_mm512_mul_ps(repeated, _mm512_set1_ps(one))));
  return _mm512_broadcast_i64x4(words);
}

// Returns `low`, whose words have a level's lowest two bits, with bit 2 of `top`.
inline __m512i with_top_bit(__m512i low, __m512i top) {
  return _mm512_ternarylogic_epi32(low, top, _mm512_set1_epi16(4), 0xd8);
}

inline __m512i look_up_words(__m512i index, __m512i table) { return _mm512_permutexvar_epi16(index, table); }

// Adds to each lane the products of two words.
inline __m512i add_word_products(__m512i sum, __m512i a, __m512i b) { return _mm512_dpwssd_epi32(sum, a, b); }

// Returns the lower words of x's dwords in even places and those of y's dwords in odd places.
inline __m512i pair_words(__m512i x, __m512i y) {
  return _mm512_mask_blend_epi16(0xaaaaaaaa, x, _mm512_slli_epi32(y, 16));
}

}  // namespace
}  // namespace millrace
