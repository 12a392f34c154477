// Levels as bf16 words, and their scales, for attention over tiles of levels (attention_bf16_levels.h, which explains
// the layouts). Include after attention_bf16.h.
#pragma once

#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

constexpr int64_t kLevelStrip = 128;  // keys that few rows process at a time
constexpr int64_t kValueStrip = 128;
constexpr int64_t kVectorKeys = 16;
constexpr int64_t kStepTokens = 8;  // of values
constexpr int64_t kMaxLevelGroups = kMaxTilesHeadDim / 32;
constexpr int64_t kSharedTokens = 32;  // a query times scales by columns holds for so many keys

struct LevelScratch {
  alignas(64) uint8_t keys[kAttentionPartition * kMaxTilesHeadDim * 2];
  alignas(64) uint8_t values[kAttentionPartition * kMaxTilesHeadDim * 2];
  alignas(64) uint8_t query[kBlockRows * (kLevelStrip / kSharedTokens) * kQueryStride];
  alignas(64) float rest[kBlockRows][kMaxLevelGroups];  // sums of queries, by group
  alignas(64) float column_scale[kMaxTilesHeadDim], column_zero[kMaxTilesHeadDim];
  alignas(64) float key_scale[kMaxLevelGroups][kAttentionPartition], key_zero[kMaxLevelGroups][kAttentionPartition];
  alignas(64) float value_scale[kMaxLevelGroups][kAttentionPartition];
  alignas(64) float value_zero[kMaxLevelGroups][kAttentionPartition];
  alignas(64) uint8_t weight[kBlockRows][kMaxLevelGroups][kAttentionPartition * 2];
  alignas(64) float value_sum[kBlockRows * kMaxTilesHeadDim * 4];  // [row][unit][shift][4 lanes][4 dims]
  float value_rest[kBlockRows][kMaxLevelGroups];
  alignas(64) float dot[kBlockRows * kScoreStride];  // of one group of dims
};

template <int kBits>
struct LevelUnit {
  static constexpr int kStep = kBits == 4 ? 4 : 2;  // bits that are adjacent in a byte
  static constexpr int kShifts = 16 / kStep;
  static constexpr int64_t kDims = affine_unit_values(kBits);
  static constexpr int64_t kBytes = affine_unit_bytes(kBits);
  static constexpr int64_t kUnits = kBits == 3 ? 1 : 2;  // in the 16 bytes that are loaded at a time
  // The dim of a unit that is in this word, at this shift.
  static constexpr int dim(int word, int shift) { return 2 * word + shift * kStep / 8 + shift * kStep % 8 / kStep * 8; }
};

// What levels that stand for themselves are lowered by, and zeros are raised by as often as their scale.
inline float middle_level(int bits) { return static_cast<float>((1 << bits) - 1) / 2; }
inline float middle_of(const LevelTiles& tiles) { return tiles.codes ? 0 : middle_level(tiles.bits); }
inline __m512 raised_zero(__m512 scale, __m512 zero, float middle) {
  return middle == 0 ? zero : _mm512_fmadd_ps(scale, _mm512_set1_ps(middle), zero);
}

// Levels of 5 bits, of which the lowest kBits count, to bf16.
template <int kBits>
inline __m512i code_table(const float* codes) {
  const __m512 levels = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512 values = codes ? _mm512_loadu_ps(codes) : _mm512_sub_ps(levels, _mm512_set1_ps(middle_level(kBits)));
  alignas(64) uint16_t places[32];
  for (int i = 0; i < 32; ++i) places[i] = static_cast<uint16_t>(i & ((1 << kBits) - 1));
  return _mm512_permutexvar_epi16(_mm512_load_si512(places), round_to_bf16(values, values));
}

// 16 bytes of each of four tokens. The last ones may reach behind the levels, into the scales of the tile.
inline __m512i load_tokens(const uint8_t* levels, int64_t stride) {
  if (stride == 16) return _mm512_loadu_si512(levels);
  const auto one = [&](int64_t token) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(levels + token * stride));
  };
  const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(one(0)), one(1), 1);
  const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(one(2)), one(3), 1);
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// words[c]: dword c of 16 tokens.
inline void transpose_dwords(const uint8_t* levels, int64_t stride, __m512i* words) {
  const __m512i a = load_tokens(levels, stride), b = load_tokens(levels + 4 * stride, stride);
  const __m512i c = load_tokens(levels + 8 * stride, stride), d = load_tokens(levels + 12 * stride, stride);
  const __m512i ab_low = _mm512_unpacklo_epi32(a, b), ab_high = _mm512_unpackhi_epi32(a, b);
  const __m512i cd_low = _mm512_unpacklo_epi32(c, d), cd_high = _mm512_unpackhi_epi32(c, d);
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  words[0] = _mm512_permutexvar_epi32(order, _mm512_unpacklo_epi64(ab_low, cd_low));
  words[1] = _mm512_permutexvar_epi32(order, _mm512_unpackhi_epi64(ab_low, cd_low));
  words[2] = _mm512_permutexvar_epi32(order, _mm512_unpacklo_epi64(ab_high, cd_high));
  words[3] = _mm512_permutexvar_epi32(order, _mm512_unpackhi_epi64(ab_high, cd_high));
}

// Words whose bit 2 comes from `top` rotated by this, and whose lower bits are those of `low`.
inline __m512i join_top_bit(__m512i low, __m512i even, __m512i odd) {
  const __m512i top = _mm512_mask_blend_epi16(0xaaaaaaaau, even, odd);
  return _mm512_ternarylogic_epi32(_mm512_set1_epi16(3), low, top, 0xca);  // 3 ? low : top
}

// Halves of 16 tokens, `groups` halves apart, of one group.
inline __m512 halves_of_tokens(const uint8_t* halves, int64_t groups) {
  if (groups == 1) return Simd::load_f16(halves);
  alignas(32) uint16_t each[kVectorKeys];
  for (int64_t t = 0; t < kVectorKeys; ++t) std::memcpy(&each[t], halves + 2 * t * groups, 2);
  return Simd::load_f16(reinterpret_cast<const uint8_t*>(each));
}

inline int64_t groups_of(const LevelTiles& tiles, int64_t dims) { return (dims + tiles.group - 1) / tiles.group; }

// Scales and zeros, raised by `middle` scales, of 32 tokens, of whose partition the first is token `at`.
inline void load_token_scales(const LevelTiles& tiles, const uint8_t* tile, int64_t first, int64_t groups, int64_t at,
                              float middle, float (*scale)[kAttentionPartition], float (*zero)[kAttentionPartition]) {
  for (int64_t t = 0; t < kSharedTokens; t += kVectorKeys) {
    const int64_t from = 2 * (first + t) * groups;
    const auto store = [&](int64_t g, __m512 s, __m512 z) {
      _mm512_store_ps(scale[g] + at + t, s);
      _mm512_store_ps(zero[g] + at + t, raised_zero(s, z, middle));
    };
    if (groups == 2) {  // a dword per token
      const __m512i s = _mm512_loadu_si512(tile + tiles.scales_at + from);
      const __m512i z = _mm512_loadu_si512(tile + tiles.zeros_at + from);
      const auto half = [](__m512i dwords) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(dwords)); };
      store(0, half(s), half(z));
      store(1, half(_mm512_srli_epi32(s, 16)), half(_mm512_srli_epi32(z, 16)));
      continue;
    }
    if (groups == 4) {  // a quadword per token
      const uint8_t *s = tile + tiles.scales_at + from, *z = tile + tiles.zeros_at + from;
      const auto half = [](const uint8_t* halves, int g) {
        const auto eight = [&](const uint8_t* p) {
          return _mm512_cvtepi64_epi16(_mm512_srli_epi64(_mm512_loadu_si512(p), static_cast<unsigned>(16 * g)));
        };
        return _mm512_cvtph_ps(_mm256_set_m128i(eight(halves + 64), eight(halves)));
      };
      for (int g = 0; g < 4; ++g) store(g, half(s, g), half(z, g));
      continue;
    }
    for (int64_t g = 0; g < groups; ++g)
      store(g, halves_of_tokens(tile + tiles.scales_at + from + 2 * g, groups),
            halves_of_tokens(tile + tiles.zeros_at + from + 2 * g, groups));
  }
}

// Scales and zeros, raised by `middle` scales, of every dim. Zeros behind the head, up to whole 32 dims.
inline void load_column_scales(const AttentionArgs& a, const uint8_t* tile, int64_t first, float middle, float* scales,
                               float* zeros) {
  const LevelTiles& tiles = *a.tiles;
  const int64_t at = 2 * (first / tiles.key_tokens * a.head_dim);
  for (int64_t d = 0; d < (a.head_dim + 31) / 32 * 32; d += 16) {
    const int64_t left = a.head_dim - d;
    const auto mask = static_cast<__mmask16>(left >= 16 ? 0xffffu : left > 0 ? (1u << left) - 1 : 0);
    const auto load = [&](int64_t from) {
      return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, tile + from + at + 2 * d));
    };
    const __m512 scale = load(tiles.scales_at);
    _mm512_store_ps(scales + d, scale);
    _mm512_store_ps(zeros + d, raised_zero(scale, load(tiles.zeros_at), middle));
  }
}

// Where a token of the partition is encoded.
struct TilePlace {
  const uint8_t* tile;
  int64_t first;  // token of the tile
};

inline TilePlace place_of(const AttentionArgs& a, const uint8_t* const* blocks, int64_t key) {
  const int64_t slot = a.key_begin + key;
  return {blocks[slot / a.block_tokens], slot % a.block_tokens};
}

// The tile that a later call of this loop reads.
inline void prefetch_tile(const AttentionArgs& a, const uint8_t* const* blocks, int64_t key) {
  constexpr int64_t kTokensAhead = 128;
  const int64_t slot = a.key_begin + key + kTokensAhead;
  if (slot >= a.encoded_end || slot >= a.key_ahead) return;
  const uint8_t* tile = blocks[slot / a.block_tokens];
  const int64_t first = slot % a.block_tokens;
  prefetch_bytes(tile + first * a.tiles->stride, kSharedTokens * a.tiles->stride);
  const int64_t scales = a.tiles->zeros_at - a.tiles->scales_at, part = scales * kSharedTokens / a.block_tokens;
  prefetch_bytes(tile + a.tiles->scales_at + scales * first / a.block_tokens, part);
  prefetch_bytes(tile + a.tiles->zeros_at + scales * first / a.block_tokens, part);
}

}  // namespace
}  // namespace millrace
