// Attention over tiles of levels (LevelTiles) with bf16 products: levels are at most 4 bits, so bf16 holds them
// exactly, and they are multiplied as they are; their scales and zeros join queries, scores and weights instead.
// Include after attention_bf16.h and affine_levels.h.
//
// With s and z the scale and zero of a group, c the codes that levels stand for, and ~ rounding to bf16 (levels that
// stand for themselves are centred about zero, and z moves by as much, so that sums are small):
//
//   keys by columns    score = sum over d of ~(q s) c   + sum over d of q z         s, z of 32 tokens or more
//   keys by tokens     score = s (sum over d of ~q c)   + z (sum over d of ~q)      s, z of a token, by groups of dims
//   values             acc   = sum over t of ~(p s) c   + sum over t of p z         p: bf16 weights, as of other keys
//
// A level becomes a bf16 by a look-up (vpermw): shifted so that it is the lowest bits of a word. Higher bits are those
// of other levels, and the table repeats so that they do not matter. A unit (AffineRows) is two dwords of each token,
// and a dword two words; the levels at the same place of both words make a pair:
//
//   keys     [16 tokens][unit][dword][shift]    16 lanes of two dims: a lane per token
//   values   [8 tokens][unit][shift]            lane l: dims of words 0 to 3, each of tokens l and 4 + l
//
// The order of every sum depends on the row and its own keys alone, as in attention_bf16.h.
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
inline __m512 centred_zero(const LevelTiles& tiles, __m512 scale, __m512 zero) {
  return tiles.codes ? zero : _mm512_fmadd_ps(scale, _mm512_set1_ps(middle_level(tiles.bits)), zero);
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

// ---- keys ---------------------------------------------------------------------------------------

// 16 tokens' keys, [unit][dword][shift] of 64 bytes each.
template <int kBits>
void decode_keys(const uint8_t* levels, int64_t stride, int64_t units, __m512i table, uint8_t* out) {
  using Unit = LevelUnit<kBits>;
  for (int64_t unit = 0; unit < units; unit += Unit::kUnits) {
    __m512i words[4];
    transpose_dwords(levels + unit * Unit::kBytes, stride, words);
    const int dwords = Unit::kUnits == 2 && unit + 1 < units ? 4 : 2;
    const auto decode = [&](int dword) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int shift = 0; shift < Unit::kShifts; ++shift, out += 64) {
        __m512i level = _mm512_srli_epi32(words[dword], static_cast<unsigned>(shift * Unit::kStep));
        if constexpr (kBits == 3) {
          const int dim = Unit::dim(2 * dword, shift);  // and dim + 2 in the other word
          level = join_top_bit(level, _mm512_rolv_epi32(words[2], _mm512_set1_epi32((2 - dim) & 31)),
                               _mm512_rolv_epi32(words[2], _mm512_set1_epi32((16 - dim) & 31)));
        }
        _mm512_store_si512(out, _mm512_permutexvar_epi16(level, table));
      }
    };
    decode(0);
    decode(1);
    if (dwords < 4) continue;
    decode(2);
    decode(3);
  }
}

// The order in which 32 dims are multiplied.
template <int kBits>
inline __m512i query_order() {
  using Unit = LevelUnit<kBits>;
  alignas(64) uint16_t places[32];
  int at = 0;
  for (int64_t first = 0; first < 32; first += Unit::kDims)
    for (int dword = 0; dword < 2; ++dword)
      for (int shift = 0; shift < Unit::kShifts; ++shift)
        for (int word = 0; word < 2; ++word)
          places[at++] = static_cast<uint16_t>(first + Unit::dim(2 * dword + word, shift));
  return _mm512_load_si512(places);
}

// 32 dims, or the last ones with zeros behind them.
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

inline __m512 low_words(__m512i words) { return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16)); }
inline __m512 high_words(__m512i words) {
  return _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

// ~q, and its sums by group.
template <int kBits>
void round_query_groups(const AttentionArgs& a, int64_t row, int64_t rows, LevelScratch& l) {
  const __m512i order = query_order<kBits>();
  for (int64_t r = 0; r < rows; ++r) {
    const float* q = query_of(a, row + r);
    for (int64_t d = 0; d < a.head_dim;) {
      const int64_t group = d / a.tiles->group;
      __m512 sum = _mm512_setzero_ps();
      for (; d < a.head_dim && d / a.tiles->group == group; d += 32) {
        const QueryDims part(q, d, a.head_dim);
        const __m512i words = round_to_bf16(part.low, part.high);
        sum = _mm512_add_ps(sum, _mm512_add_ps(low_words(words), high_words(words)));
        _mm512_store_si512(l.query + r * kQueryStride + d * 2, _mm512_permutexvar_epi16(order, words));
      }
      l.rest[r][group] = Simd::sum(sum);
    }
  }
}

// ~(q s) for the keys that share these scales, at query[r][place], and adds q z of all dims to their scores later.
template <int kBits>
void scale_queries(const AttentionArgs& a, int64_t row, int64_t rows, int64_t place, LevelScratch& l) {
  const __m512i order = query_order<kBits>();
  for (int64_t r = 0; r < rows; ++r) {
    const float* q = query_of(a, row + r);
    uint8_t* out = l.query + (place * kBlockRows + r) * kQueryStride;
    __m512 sum = _mm512_setzero_ps();
    for (int64_t d = 0; d < a.head_dim; d += 32) {
      const QueryDims part(q, d, a.head_dim);
      const __m512i words = round_to_bf16(_mm512_mul_ps(part.low, _mm512_load_ps(l.column_scale + d)),
                                          _mm512_mul_ps(part.high, _mm512_load_ps(l.column_scale + d + 16)));
      sum = _mm512_fmadd_ps(part.low, _mm512_load_ps(l.column_zero + d), sum);
      sum = _mm512_fmadd_ps(part.high, _mm512_load_ps(l.column_zero + d + 16), sum);
      _mm512_store_si512(out + d * 2, _mm512_permutexvar_epi16(order, words));
    }
    l.rest[r][place] = Simd::sum(sum);
  }
}

// Sums of pairs [begin, end) for kRows rows and kVectors vectors of keys, `vector_bytes` apart; the query of vectors
// 2 i and 2 i + 1 is place_bytes i behind the first. first: sums begin at zero.
template <int kRows, int kVectors>
void dot_levels(const uint8_t* query, int64_t place_bytes, const uint8_t* keys, int64_t vector_bytes, int64_t begin,
                int64_t end, float* out) {
  __m512 sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kVectors; ++c) sum[r][c] = _mm512_setzero_ps();
  }
  for (int64_t pair = begin; pair < end; ++pair) {
    __m512i key[kVectors];
#pragma GCC unroll 16
    for (int c = 0; c < kVectors; ++c) key[c] = _mm512_load_si512(keys + c * vector_bytes + pair * 64);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int c = 0; c < kVectors; ++c) {
        const __m512i q = broadcast_word(query + r * kQueryStride + c / 2 * place_bytes + pair * 4);
        sum[r][c] = multiply_add(sum[r][c], key[c], q);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kVectors; ++c) _mm512_store_ps(out + r * kScoreStride + c * kVectorKeys, sum[r][c]);
  }
}

// All rows of a block, vectors [0, count) of keys.
inline void dot_rows(int64_t rows, int64_t count, const uint8_t* query, int64_t place_bytes, const uint8_t* keys,
                     int64_t vector_bytes, int64_t begin, int64_t end, float* out) {
  in_twelves(rows, [&]<int n>(int64_t r) {
    constexpr int kVectors = n == 1 ? 8 : n == 2 ? 8 : n == 4 ? 4 : 2;
    int64_t v = 0;
    const auto at = [&]<int m>() {
      dot_levels<n, m>(query + r * kQueryStride + v / 2 * place_bytes, place_bytes, keys + v * vector_bytes,
                       vector_bytes, begin, end, out + r * kScoreStride + v * kVectorKeys);
    };
    for (; v + kVectors <= count; v += kVectors) at.template operator()<kVectors>();
    for (; v < count; v += 2) at.template operator()<2>();
  });
}

// ---- scales -------------------------------------------------------------------------------------

// Halves of 16 tokens, `groups` halves apart, of one group.
inline __m512 halves_of_tokens(const uint8_t* halves, int64_t groups) {
  if (groups == 1) return Simd::load_f16(halves);
  alignas(32) uint16_t each[kVectorKeys];
  for (int64_t t = 0; t < kVectorKeys; ++t) std::memcpy(&each[t], halves + 2 * t * groups, 2);
  return Simd::load_f16(reinterpret_cast<const uint8_t*>(each));
}

inline int64_t groups_of(const LevelTiles& tiles, int64_t dims) { return (dims + tiles.group - 1) / tiles.group; }

// Scales and zeros of 32 tokens, of whose partition the first is token `at`.
inline void load_token_scales(const LevelTiles& tiles, const uint8_t* tile, int64_t first, int64_t groups, int64_t at,
                              float (*scale)[kAttentionPartition], float (*zero)[kAttentionPartition]) {
  for (int64_t t = 0; t < kSharedTokens; t += kVectorKeys) {
    const int64_t from = 2 * (first + t) * groups;
    const auto store = [&](int64_t g, __m512 s, __m512 z) {
      _mm512_store_ps(scale[g] + at + t, s);
      _mm512_store_ps(zero[g] + at + t, centred_zero(tiles, s, z));
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

// Zeros behind the head, up to whole 32 dims.
inline void load_column_scales(const AttentionArgs& a, const uint8_t* tile, int64_t first, LevelScratch& l) {
  const LevelTiles& tiles = *a.tiles;
  const int64_t at = 2 * (first / tiles.key_tokens * a.head_dim);
  for (int64_t d = 0; d < (a.head_dim + 31) / 32 * 32; d += 16) {
    const int64_t left = a.head_dim - d;
    const auto mask = static_cast<__mmask16>(left >= 16 ? 0xffffu : left > 0 ? (1u << left) - 1 : 0);
    const auto load = [&](int64_t from) {
      return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, tile + from + at + 2 * d));
    };
    const __m512 scale = load(tiles.scales_at);
    _mm512_store_ps(l.column_scale + d, scale);
    _mm512_store_ps(l.column_zero + d, centred_zero(tiles, scale, load(tiles.zeros_at)));
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

// ---- scores -------------------------------------------------------------------------------------

template <int kBits>
void decode_key_range(const AttentionArgs& a, int64_t begin, int64_t end, int64_t units, uint8_t* out,
                      LevelScratch& l) {
  const __m512i table = code_table<kBits>(a.tiles->codes);
  const int64_t vector_bytes = units * LevelUnit<kBits>::kDims * 32;
  for (int64_t key = begin; key < end; key += kSharedTokens) {
    prefetch_tile(a, a.k_blocks, key);
    const TilePlace at = place_of(a, a.k_blocks, key);
    for (int64_t t = 0; t < kSharedTokens; t += kVectorKeys, out += vector_bytes)
      decode_keys<kBits>(at.tile + (at.first + t) * a.tiles->stride, a.tiles->stride, units, table, out);
    if (a.tiles->key_tokens == 0)
      load_token_scales(*a.tiles, at.tile, at.first, groups_of(*a.tiles, a.head_dim), key, l.key_scale, l.key_zero);
  }
}

// score = s dot + z rest, added to the groups before.
inline void join_groups(int64_t rows, int64_t group, int64_t begin, int64_t end, LevelScratch& l, float* score) {
  for (int64_t r = 0; r < rows; ++r) {
    const __m512 rest = _mm512_set1_ps(l.rest[r][group]);
    for (int64_t j = begin; j < end; j += kVectorKeys) {
      const __m512 dot = _mm512_load_ps(l.dot + r * kScoreStride + j - begin);
      float* out = score + r * kScoreStride + j;
      __m512 sum = _mm512_mul_ps(_mm512_load_ps(l.key_scale[group] + j), dot);
      if (group > 0) sum = _mm512_add_ps(sum, _mm512_load_ps(out));
      _mm512_store_ps(out, _mm512_fmadd_ps(_mm512_load_ps(l.key_zero[group] + j), rest, sum));
    }
  }
}

// Scores of the encoded keys [begin, end), whole chunks. decoded: all keys of the partition are in the scratch, from
// key `decoded` on; negative: they are decoded here.
template <int kBits>
void score_levels(const AttentionArgs& a, int64_t row, int64_t rows, int64_t begin, int64_t end, int64_t decoded,
                  Bf16Scratch& s, LevelScratch& l) {
  using Unit = LevelUnit<kBits>;
  const int64_t units = (a.head_dim + Unit::kDims - 1) / Unit::kDims;
  const int64_t vector_bytes = units * Unit::kDims * 32, pairs = units * Unit::kDims / 2;
  const bool columns = a.tiles->key_tokens > 0;
  if (!columns) round_query_groups<kBits>(a, row, rows, l);
  for (int64_t strip = begin; strip < end; strip += kLevelStrip) {
    const int64_t stop = strip + kLevelStrip < end ? strip + kLevelStrip : end;
    const uint8_t* keys = l.keys;
    if (decoded >= 0)
      keys += (strip - decoded) / kVectorKeys * vector_bytes;
    else
      decode_key_range<kBits>(a, strip, stop, units, l.keys, l);
    const int64_t vectors = (stop - strip) / kVectorKeys;
    if (columns) {
      for (int64_t key = strip; key < stop; key += kSharedTokens) {
        const TilePlace at = place_of(a, a.k_blocks, key);
        load_column_scales(a, at.tile, at.first, l);
        scale_queries<kBits>(a, row, rows, (key - strip) / kSharedTokens, l);
      }
      dot_rows(rows, vectors, l.query, kBlockRows * kQueryStride, keys, vector_bytes, 0, pairs, s.score + strip);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t j = strip; j < stop; j += kVectorKeys) {
          float* score = s.score + r * kScoreStride + j;
          const __m512 rest = _mm512_set1_ps(l.rest[r][(j - strip) / kSharedTokens]);
          _mm512_store_ps(score, _mm512_add_ps(_mm512_load_ps(score), rest));
        }
      }
      continue;
    }
    const int64_t group_pairs = a.tiles->group / 2;
    for (int64_t g = 0; g * group_pairs < pairs; ++g) {
      const int64_t last = (g + 1) * group_pairs < pairs ? (g + 1) * group_pairs : pairs;
      dot_rows(rows, vectors, l.query, 0, keys, vector_bytes, g * group_pairs, last, l.dot);
      join_groups(rows, g, strip, stop, l, s.score);
    }
  }
}

// ---- values -------------------------------------------------------------------------------------

// Eight tokens of units that begin at `levels`, and the next; [shift] of each.
template <int kBits, typename Use>
[[gnu::always_inline]] inline void decode_values(const uint8_t* levels, int64_t stride, bool second, __m512i table,
                                                 const Use& use) {
  using Unit = LevelUnit<kBits>;
  const __m512i a = load_tokens(levels, stride), b = load_tokens(levels + 4 * stride, stride);
  const auto decode = [&](__m512i words, int unit) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int shift = 0; shift < Unit::kShifts; ++shift) {
      __m512i level = _mm512_srli_epi32(words, static_cast<unsigned>(shift * Unit::kStep));
      if constexpr (kBits == 3) {
        const int dim = Unit::dim(0, shift);  // of word 0; two more of each word behind it
        const __m512i even = _mm512_shuffle_epi32(a, _MM_PERM_CCCC), odd = _mm512_shuffle_epi32(b, _MM_PERM_CCCC);
        const auto by = [dim](int to) {
          return _mm512_broadcast_i32x4(
              _mm_setr_epi32((to - dim) & 31, (to - dim - 2) & 31, (to - dim - 4) & 31, (to - dim - 6) & 31));
        };
        level = join_top_bit(level, _mm512_rolv_epi32(even, by(2)), _mm512_rolv_epi32(odd, by(18)));
      }
      use(unit, shift, _mm512_permutexvar_epi16(level, table));
    }
  };
  decode(_mm512_unpacklo_epi16(a, b), 0);
  if constexpr (Unit::kUnits == 2) {
    if (second) decode(_mm512_unpackhi_epi16(a, b), 1);
  }
}

template <int kBits>
void decode_value_range(const AttentionArgs& a, int64_t begin, int64_t end, int64_t units, uint8_t* out) {
  using Unit = LevelUnit<kBits>;
  const __m512i table = code_table<kBits>(a.tiles->codes);
  for (int64_t key = begin; key < end; key += kStepTokens, out += units * Unit::kShifts * 64) {
    if (key % kSharedTokens == 0) prefetch_tile(a, a.v_blocks, key);
    const TilePlace at = place_of(a, a.v_blocks, key);
    const uint8_t* levels = at.tile + at.first * a.tiles->stride;
    for (int64_t unit = 0; unit < units; unit += Unit::kUnits)
      decode_values<kBits>(
          levels + unit * Unit::kBytes, a.tiles->stride, unit + 1 < units,
          table, [&](int u, int shift, __m512i words) __attribute__((always_inline)) {
            _mm512_store_si512(out + ((unit + u) * Unit::kShifts + shift) * 64, words);
          });
  }
}

// ~(p s) of a row by group, and the sum of p z.
inline void scale_weights(const uint8_t* weight, int64_t begin, int64_t end, int64_t groups, int64_t row,
                          LevelScratch& l) {
  const auto widen = [](__m256i words) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
  };
  for (int64_t g = 0; g < groups; ++g) {
    __m512 sum = _mm512_setzero_ps();
    for (int64_t j = begin; j < end; j += 32) {
      const __m512i words = _mm512_load_si512(weight + j * 2);
      const __m512 low = widen(_mm512_castsi512_si256(words)), high = widen(_mm512_extracti64x4_epi64(words, 1));
      sum = _mm512_fmadd_ps(low, _mm512_load_ps(l.value_zero[g] + j), sum);
      sum = _mm512_fmadd_ps(high, _mm512_load_ps(l.value_zero[g] + j + 16), sum);
      _mm512_store_si512(l.weight[row][g] + j * 2,
                         round_to_bf16(_mm512_mul_ps(low, _mm512_load_ps(l.value_scale[g] + j)),
                                       _mm512_mul_ps(high, _mm512_load_ps(l.value_scale[g] + j + 16))));
    }
    l.value_rest[row][g] = Simd::sum(sum);
  }
}

// Lane l: weights l and 4 + l of eight tokens.
inline __m512i spread_weights(const uint8_t* weight) {
  const __m512i order = _mm512_setr_epi32(0x40000, 0x40000, 0x40000, 0x40000, 0x50001, 0x50001, 0x50001, 0x50001,
                                          0x60002, 0x60002, 0x60002, 0x60002, 0x70003, 0x70003, 0x70003, 0x70003);
  const __m512i eight = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(weight)));
  return _mm512_permutexvar_epi16(order, eight);
}

// The sums of the four lanes of each of four vectors, a lane each.
inline __m512 add_lanes(const __m512* v) {
  const __m512 a = _mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x44), _mm512_shuffle_f32x4(v[0], v[1], 0xee));
  const __m512 b = _mm512_add_ps(_mm512_shuffle_f32x4(v[2], v[3], 0x44), _mm512_shuffle_f32x4(v[2], v[3], 0xee));
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

inline void add_dims(float* acc, int64_t left, __m512 sum, float rest) {
  const auto mask = static_cast<__mmask16>(left >= 16 ? 0xffffu : (1u << left) - 1);
  sum = _mm512_add_ps(sum, _mm512_set1_ps(rest));
  _mm512_mask_storeu_ps(acc, mask, _mm512_add_ps(_mm512_maskz_loadu_ps(mask, acc), sum));
}

// A unit's sums, [shift][4 lanes][words 0 to 3], onto `left` dims of acc or fewer.
template <int kBits>
inline void add_unit(const __m512* sum, float rest, float* acc, int64_t left) {
  const __m512 first = add_lanes(sum);
  if constexpr (kBits == 4) {  // words' dims 0 2 4 6 | 8 10 12 14 | 1 3 5 7 | 9 11 13 15
    const __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    add_dims(acc, left, _mm512_permutexvar_ps(order, first), rest);
  } else {  // even dims, then odd ones
    const __m512 second = add_lanes(sum + 4);
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    add_dims(acc, left, _mm512_permutex2var_ps(first, low, second), rest);
    if (left > 16) add_dims(acc + 16, left - 16, _mm512_permutex2var_ps(first, high, second), rest);
  }
}

// kCount units of one row, decoded here: 16 sums at most. Weights are those of each unit's group.
template <int kBits, int kCount>
void value_row(const AttentionArgs& a, int64_t begin, int64_t end, int64_t unit, __m512i table, float* acc,
               LevelScratch& l) {
  using Unit = LevelUnit<kBits>;
  __m512 sum[kCount][Unit::kShifts];
#pragma GCC unroll 8
  for (int u = 0; u < kCount; ++u) {
#pragma GCC unroll 8
    for (int k = 0; k < Unit::kShifts; ++k) sum[u][k] = _mm512_setzero_ps();
  }
  const int64_t dims = value_dim_of(a);
  const uint8_t* weights[kCount];
  for (int u = 0; u < kCount; ++u) weights[u] = l.weight[0][(unit + u) * Unit::kDims / a.tiles->group];
  for (int64_t key = begin; key < end; key += kStepTokens) {
    __m512i w[kCount];
#pragma GCC unroll 8
    for (int u = 0; u < kCount; ++u) w[u] = spread_weights(weights[u] + key * 2);
    if (unit == 0 && key % kSharedTokens == 0) prefetch_tile(a, a.v_blocks, key);
    const TilePlace at = place_of(a, a.v_blocks, key);
    const uint8_t* levels = at.tile + at.first * a.tiles->stride + unit * Unit::kBytes;
#pragma GCC unroll 8
    for (int u = 0; u < kCount; u += Unit::kUnits)
      decode_values<kBits>(
          levels + u * Unit::kBytes, a.tiles->stride, u + 1 < kCount,
          table, [&](int which, int k, __m512i words) __attribute__((always_inline)) {
            sum[u + which][k] = multiply_add(sum[u + which][k], words, w[u + which]);
          });
  }
#pragma GCC unroll 8
  for (int u = 0; u < kCount; ++u) {
    const int64_t d = (unit + u) * Unit::kDims;
    add_unit<kBits>(sum[u], l.value_rest[0][d / a.tiles->group], acc + d, dims - d);
  }
}

// Adds the decoded values [begin, end) to the sums of kRows rows and kCount units: 16 at most.
template <int kBits, int kRows, int kCount>
void value_rows(int64_t group_dims, int64_t row, int64_t begin, int64_t end, int64_t unit, int64_t units,
                const uint8_t* decoded, LevelScratch& l) {
  using Unit = LevelUnit<kBits>;
  __m512 sum[kRows][kCount][Unit::kShifts];
  const int64_t group = unit * Unit::kDims / group_dims;  // of all of them: a group is 32 dims or more
  float* sums = l.value_sum + (row * units + unit) * Unit::kShifts * 16;
  const auto each = [&](const auto& use) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int u = 0; u < kCount; ++u) {
#pragma GCC unroll 8
        for (int k = 0; k < Unit::kShifts; ++k) use(sum[r][u][k], sums + ((r * units + u) * Unit::kShifts + k) * 16);
      }
    }
  };
  each([](__m512 & one, const float* at) __attribute__((always_inline)) { one = _mm512_load_ps(at); });
  decoded += unit * Unit::kShifts * 64;
  for (int64_t key = begin; key < end; key += kStepTokens, decoded += units * Unit::kShifts * 64) {
    __m512i w[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) w[r] = spread_weights(l.weight[row + r][group] + key * 2);
#pragma GCC unroll 8
    for (int u = 0; u < kCount; ++u) {
#pragma GCC unroll 8
      for (int k = 0; k < Unit::kShifts; ++k) {
        const __m512i words = _mm512_load_si512(decoded + (u * Unit::kShifts + k) * 64);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) sum[r][u][k] = multiply_add(sum[r][u][k], words, w[r]);
      }
    }
  }
  each([](__m512 & one, float* at) __attribute__((always_inline)) { _mm512_store_ps(at, one); });
}

// Adds the encoded values [begin, end), whole chunks, to the rows' acc. `decoded`: their words, from key `begin` on;
// null: they are decoded here.
template <int kBits>
void add_levels(const AttentionArgs& a, int64_t row, int64_t rows, int64_t begin, int64_t end, const uint8_t* decoded,
                const Bf16Scratch& s, LevelScratch& l) {
  using Unit = LevelUnit<kBits>;
  const int64_t dims = value_dim_of(a), groups = groups_of(*a.tiles, dims);
  const int64_t units = (dims + Unit::kDims - 1) / Unit::kDims, step_bytes = units * Unit::kShifts * 64;
  float* acc = a.acc + row * dims;
  for (int64_t r = 0; r < rows; ++r) scale_weights(s.weight + r * kWeightStride, begin, end, groups, r, l);
  if (rows == 1 && !decoded) {
    constexpr int kMost = 16 / Unit::kShifts;
    const __m512i table = code_table<kBits>(a.tiles->codes);
    int64_t unit = 0;
    for (; unit + kMost <= units; unit += kMost) value_row<kBits, kMost>(a, begin, end, unit, table, acc, l);
    if (kMost > 2 && unit + 2 <= units) value_row<kBits, 2>(a, begin, end, unit, table, acc, l), unit += 2;
    if (unit < units) value_row<kBits, 1>(a, begin, end, unit, table, acc, l);
    return;
  }
  std::memset(l.value_sum, 0, static_cast<size_t>(rows * step_bytes));
  for (int64_t strip = begin; strip < end; strip += kValueStrip) {
    const int64_t stop = strip + kValueStrip < end ? strip + kValueStrip : end;
    const uint8_t* words = decoded ? decoded + (strip - begin) / kStepTokens * step_bytes : l.values;
    if (!decoded) decode_value_range<kBits>(a, strip, stop, units, l.values);
    constexpr int kPart = 8 / Unit::kShifts;  // units of two rows: 16 sums
    for (int64_t r = 0; r < rows; r += 2) {
      const auto add = [&]<int n>(int64_t unit) {
        if (r + 1 < rows)
          value_rows<kBits, 2, n>(a.tiles->group, r, strip, stop, unit, units, words, l);
        else
          value_rows<kBits, 1, n>(a.tiles->group, r, strip, stop, unit, units, words, l);
      };
      int64_t unit = 0;
      for (; unit + kPart <= units; unit += kPart) add.template operator()<kPart>(unit);
      if (unit < units) add.template operator()<1>(unit);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t unit = 0; unit < units; ++unit) {
      const int64_t d = unit * Unit::kDims;
      __m512 sum[Unit::kShifts];
      for (int k = 0; k < Unit::kShifts; ++k)
        sum[k] = _mm512_load_ps(l.value_sum + ((r * units + unit) * Unit::kShifts + k) * 16);
      add_unit<kBits>(sum, l.value_rest[r][d / a.tiles->group], acc + r * dims + d, dims - d);
    }
  }
}

// ---- a partition --------------------------------------------------------------------------------

// Rows [row, row + rows) of a partition with encoded keys [.., encoded) and raw ones behind them. decoded: levels are
// in the scratch from key `from` on.
template <int kBits>
void attend_level_block(const AttentionArgs& a, int64_t row, int64_t rows, int64_t padded, int64_t encoded,
                        int64_t from, bool decoded, Bf16Scratch& s, LevelScratch& l) {
  using Unit = LevelUnit<kBits>;
  const int64_t dims = value_dim_of(a), units = (dims + Unit::kDims - 1) / Unit::kDims;
  const KeyRange keys = seen_by(a, row / a.group, (row + rows - 1) / a.group);
  if (keys.empty()) return attend_nothing(a, row, rows);
  const KeyRange chunks = whole_chunks(keys);
  const int64_t level_end = chunks.end < encoded ? chunks.end : encoded;
  const KeyRange raw{keys.begin > encoded ? keys.begin : encoded, keys.end};
  if (chunks.begin < level_end) score_levels<kBits>(a, row, rows, chunks.begin, level_end, decoded ? from : -1, s, l);
  if (!raw.empty()) {
    round_queries(a, row, rows, padded, s.query);
    const KeyRange raw_chunks = whole_chunks(raw);
    in_twelves(rows, [&]<int n>(int64_t r) {
      for (int64_t j = raw_chunks.begin; j < raw_chunks.end; j += kKeyChunk)
        score_block<n, 2>(s.query + r * kQueryStride, s.keys + j * padded * 2, padded, s.score + r * kScoreStride + j);
    });
  }
  weigh_rows(a, row, rows, chunks, s);
  float* acc = a.acc + row * dims;
  if (raw.empty()) {
    std::memset(acc, 0, static_cast<size_t>(rows * dims) * sizeof(float));
  } else {
    in_twelves(rows, [&]<int n>(int64_t r) {
      for (int64_t d = 0; d < dims; d += kDimGroup)
        value_block<n, 1>(TileValues{s.values + d / kDimGroup * kGroupBytes}, s.weight + r * kWeightStride,
                          raw.begin / 2, (raw.end + 1) / 2, true, s.sum + r * kSumStride + d, nullptr);
    });
    store_sums(s.sum, rows, dims, acc);
  }
  if (chunks.begin >= level_end) return;
  const int64_t groups = groups_of(*a.tiles, dims);
  for (int64_t key = chunks.begin; key < level_end; key += kSharedTokens) {
    const TilePlace at = place_of(a, a.v_blocks, key);
    load_token_scales(*a.tiles, at.tile, at.first, groups, key, l.value_scale, l.value_zero);
  }
  const int64_t step_bytes = units * Unit::kShifts * 64;
  const uint8_t* values = decoded ? l.values + (chunks.begin - from) / kStepTokens * step_bytes : nullptr;
  add_levels<kBits>(a, row, rows, chunks.begin, level_end, values, s, l);
}

template <int kBits>
void attend_level_partition(const AttentionArgs& a, Bf16Scratch& s, LevelScratch& l) {
  using Unit = LevelUnit<kBits>;
  const int64_t rows = a.queries * a.group;
  const KeyRange keys = seen_by(a, 0, a.queries - 1);
  if (keys.empty()) return attend_nothing(a, 0, rows);
  const KeyRange least = seen_by(a, a.queries - 1, 0), chunks = whole_chunks(keys);
  const bool alike = least.begin == keys.begin && least.end == keys.end;
  const int64_t padded = (a.head_dim + kDimGroup - 1) / kDimGroup * kDimGroup;
  const int64_t ahead = a.encoded_end - a.key_begin;
  const int64_t encoded = ahead < chunks.begin ? chunks.begin : ahead < chunks.end ? ahead : chunks.end;
  const KeyRange raw{keys.begin > encoded ? keys.begin : encoded, keys.end};
  if (!raw.empty() && !load_tiles<ReadF16, ReadF16>(a, raw, padded, s) && !alike) {
    for (int64_t i = 0; i < a.queries; ++i) {
      AttentionArgs one = a;
      one.q += i * a.q_stride;
      one.queries = 1;
      one.first_query += i;
      one.max += i * a.group;
      one.sum += i * a.group;
      one.acc += i * a.group * value_dim_of(a);
      attend_level_partition<kBits>(one, s, l);
    }
    return;
  }
  const bool decoded = rows > kBlockRows;
  if (decoded && chunks.begin < encoded) {
    const int64_t units = (a.head_dim + Unit::kDims - 1) / Unit::kDims;
    decode_key_range<kBits>(a, chunks.begin, encoded, units, l.keys, l);
    decode_value_range<kBits>(a, chunks.begin, encoded, (value_dim_of(a) + Unit::kDims - 1) / Unit::kDims, l.values);
  }
  for (int64_t row = 0; row < rows; row += kBlockRows)
    attend_level_block<kBits>(a, row, rows - row < kBlockRows ? rows - row : kBlockRows, padded, encoded, chunks.begin,
                              decoded, s, l);
}

inline void attend_levels_bf16(const AttentionArgs& a) noexcept {
  Bf16Scratch s;
  LevelScratch l;
  if (a.tiles->bits == 2) return attend_level_partition<2>(a, s, l);
  if (a.tiles->bits == 3) return attend_level_partition<3>(a, s, l);
  attend_level_partition<4>(a, s, l);
}

}  // namespace
}  // namespace millrace
