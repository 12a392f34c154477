// Loads stored levels and their scales, for attention over tiles of levels. Include after attention_bf16.h.
#pragma once

#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

constexpr int64_t kLevelStrip = 128;  // number of keys that few rows process at a time
constexpr int64_t kVectorKeys = 16;
constexpr int64_t kMaxLevelGroups = kMaxTilesHeadDim / 32;
constexpr int64_t kSharedTokens = 32;  // number of tokens for which keys share scales by columns

// Returns zero + offset * scale.
inline __m512 raised_zero(__m512 scale, __m512 zero, float offset) {
  return offset == 0 ? zero : _mm512_fmadd_ps(scale, _mm512_set1_ps(offset), zero);
}

// Loads 16 bytes of each of four tokens. The last loads may reach beyond the levels, into the scales of the tile.
inline __m512i load_tokens(const uint8_t* levels, int64_t stride) {
  if (stride == 16) return _mm512_loadu_si512(levels);
  const auto one = [&](int64_t token) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(levels + token * stride));
  };
  const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(one(0)), one(1), 1);
  const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(one(2)), one(3), 1);
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// Sets words[c] to dword c of 16 tokens.
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

// Loads one f16 of each of 16 tokens. `groups`: number of f16 from token to token.
inline __m512 halves_of_tokens(const uint8_t* halves, int64_t groups) {
  if (groups == 1) return Simd::load_f16(halves);
  alignas(32) uint16_t each[kVectorKeys];
  for (int64_t t = 0; t < kVectorKeys; ++t) std::memcpy(&each[t], halves + 2 * t * groups, 2);
  return Simd::load_f16(reinterpret_cast<const uint8_t*>(each));
}

inline int64_t groups_of(const LevelTiles& tiles, int64_t dims) { return (dims + tiles.group - 1) / tiles.group; }

// Loads scales and zeros of 32 tokens; `offset` scales are added to each zero. `at`: index of the first token in the
// partition.
inline void load_token_scales(const LevelTiles& tiles, const uint8_t* tile, int64_t first, int64_t groups, int64_t at,
                              float offset, float (*scale)[kAttentionPartition], float (*zero)[kAttentionPartition]) {
  for (int64_t t = 0; t < kSharedTokens; t += kVectorKeys) {
    const int64_t from = 2 * (first + t) * groups;
    const auto store = [&](int64_t g, __m512 s, __m512 z) {
      _mm512_store_ps(scale[g] + at + t, s);
      _mm512_store_ps(zero[g] + at + t, raised_zero(s, z, offset));
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

// Loads scales and zeros of every dim; `offset` scales are added to each zero. Beyond the head, up to a multiple of 32
// dims, both are 0.
inline void load_column_scales(const AttentionArgs& a, const uint8_t* tile, int64_t first, float offset, float* scales,
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
    _mm512_store_ps(zeros + d, raised_zero(scale, load(tiles.zeros_at), offset));
  }
}

// The place where a token of the partition is encoded.
struct TilePlace {
  const uint8_t* tile;
  int64_t first;  // index of the token in the tile
};

struct TileScratch {
  // One for each 32 tokens.
  TilePlace key_at[kAttentionPartition / kSharedTokens], value_at[kAttentionPartition / kSharedTokens];
  Ahead ahead;
  int64_t lines = 0;  // number of lines to prefetch at a time: a quarter of those of 16 keys
};

// Finds the tiles of the keys and values [begin, end), without a division for each. All parts of the work prefetch, in
// proportion to the time they take; a partition prefetches `lines` lines 128 times.
inline void start_tiles(const AttentionArgs& a, int64_t begin, int64_t end, TileScratch& b) {
  const LevelTiles& t = *a.tiles;
  const int64_t token_bytes = Ahead::bytes_of_tile(t) / a.block_tokens;
  b.lines = (kVectorKeys * token_bytes + 4 * 64 - 1) / (4 * 64);
  b.ahead.start_levels(a, begin, end, token_bytes);
  int64_t block = (a.key_begin + begin) / a.block_tokens, first = (a.key_begin + begin) % a.block_tokens;
  for (int64_t key = begin; key < end; key += kSharedTokens) {
    b.key_at[key / kSharedTokens] = {a.k_blocks[block], first};
    b.value_at[key / kSharedTokens] = {a.v_blocks[block], first};
    first += kSharedTokens;
    if (first == a.block_tokens) ++block, first = 0;
  }
}

// 32 dims of a query; the last ones are padded with zeros.
struct QueryDims {
  __m512 low, high;
  QueryDims(const float* q, int64_t d, int64_t dims) {
    const uint32_t mask = dims - d >= 32 ? 0xffffffffu : (1u << (dims - d)) - 1;
    low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), q + d);
    high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), q + d + 16);
  }
};

inline const float* query_of(const AttentionArgs& a, int64_t row) {
  return a.q + row / a.group * a.q_stride + row % a.group * a.head_dim;
}

}  // namespace
}  // namespace millrace
