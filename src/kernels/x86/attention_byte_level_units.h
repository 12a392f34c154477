// Splits numbers into two planes of signed bytes, for attention over tiles of levels with 8-bit products.
// attention_byte_levels.h explains the arithmetic. Include after attention_level_units.h.
#pragma once

#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

constexpr float kPlaneRange = 127 * 256;  // the largest integer that two planes represent
// If all numbers are smaller, they are treated as zero, because they have no effect on a result.
constexpr float kMinRange = 0x1p-100f;
constexpr int64_t kByteStep = 4;  // number of tokens whose values are multiplied at a time
constexpr int64_t kStripPlaces = kLevelStrip / kSharedTokens;
constexpr int64_t kPlaneStride = kMaxTilesHeadDim * 2 + 64;  // bytes of a query's planes
constexpr int64_t kWeightSteps = kAttentionPartition / kByteStep;

struct ByteScratch : TileScratch {
  alignas(64) uint8_t keys[kAttentionPartition * kMaxTilesHeadDim];
  alignas(64) uint8_t values[kAttentionPartition * kMaxTilesHeadDim];
  alignas(64) uint8_t query[kBlockRows * kStripPlaces * kPlaneStride];
  // For each query: by place if keys have scales by columns, otherwise by group of dims. query_scale: value of the
  // integer 1. query_rest: term that is added to scores.
  alignas(64) float query_scale[kBlockRows][kMaxLevelGroups], query_rest[kBlockRows][kMaxLevelGroups];
  alignas(64) float column_scale[kStripPlaces][kMaxTilesHeadDim], column_zero[kStripPlaces][kMaxTilesHeadDim];
  alignas(64) float key_scale[kMaxLevelGroups][kAttentionPartition], key_zero[kMaxLevelGroups][kAttentionPartition];
  alignas(64) float value_scale[kMaxLevelGroups][kAttentionPartition];
  alignas(64) float value_zero[kMaxLevelGroups][kAttentionPartition];
  alignas(64) uint8_t weight[kBlockRows][kMaxLevelGroups][kWeightSteps * 16];  // stored by pairs of groups
  float weight_scale[kBlockRows][kMaxLevelGroups], weight_rest[kBlockRows][kMaxLevelGroups];
};

// Adds to each lane the products of four unsigned bytes of `levels` and four signed bytes of `plane`.
inline __m512i add_products(__m512i sum, __m512i levels, __m512i plane) {
  return _mm512_dpbusd_epi32(sum, levels, plane);
}

// Return the value of the integer 1, and its inverse, if `most` is the largest magnitude to represent.
inline float plane_scale(float most) { return most >= kMinRange ? most * (1 / kPlaneRange) : 0; }
inline float plane_inverse(float most) { return most >= kMinRange ? kPlaneRange / most : 0; }

// Returns x * inverse, rounded to an integer, plus 128. Byte 1 is the high plane; byte 0 is the low plane with its sign
// bit inverted.
inline __m512i to_planes(__m512 x, __m512 inverse) {
  return _mm512_cvtps_epi32(_mm512_fmadd_ps(x, inverse, _mm512_set1_ps(128)));
}

// Returns for each four lanes: the low planes of a and of b, then the high planes of a and of b.
inline __m512i pair_planes(__m512i a, __m512i b) {
  const __m512i both = _mm512_ternarylogic_epi32(_mm512_set1_epi32(0xffff), a, _mm512_slli_epi32(b, 16), 0xca);
  const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15));
  return _mm512_shuffle_epi8(_mm512_xor_si512(both, _mm512_set1_epi32(0x00800080)), order);
}

// Joins the sums of both planes to integers.
inline __m512i join_planes(__m512i low, __m512i high) { return _mm512_add_epi32(_mm512_slli_epi32(high, 8), low); }

// Reduces the lanes of each of four vectors with op. Returns the four results.
template <typename Op>
inline __m128 reduce_four(const __m512* v, const Op& op) {
  const __m512 a = op(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
  const __m512 b = op(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
  const __m512 c = op(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  const __m512 d = op(c, _mm512_shuffle_f32x4(c, c, 0x4e));
  return _mm512_castps512_ps128(op(d, _mm512_shuffle_f32x4(d, d, 0xb1)));
}

}  // namespace
}  // namespace millrace
