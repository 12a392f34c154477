// Decodes and rotates keys that are stored before RoPE (LevelTiles::turns), for the attention kernel in f32. It works
// in 16-bit words: two shuffles look up the levels of 32 tokens, and 16 keys are rotated at a time. Each pair of dims
// is scaled to the largest key that its scales allow, so large channels do not reduce the precision of others. For
// AVX2, and also for AVX-512, where longer vectors would save little. Include after level_tiles_kernel.h.
#pragma once

#include <cstdint>

#include "kernels/x86/byte_columns_avx2.h"
#include "kernels/x86/eight_floats_avx2.h"

namespace millrace {
namespace {

struct TurnedKeyWords {
  static constexpr float kLargestKey = 32767;
  static constexpr float kOne = 32767;   // the word that represents 1 in cosines and sines
  static constexpr int64_t kDims = 576;  // maximum dims of a head

  struct Scratch {
    const uint8_t* column = nullptr;                        // column that `tables` belongs to
    alignas(64) int16_t channels[kDims * kTileTokens + 1];  // [dim][token], then one word that is never read
    alignas(32) uint8_t tables[kDims][32];           // values of 16 levels: their lower bytes, then their upper bytes
    alignas(32) float range[kDims], inverse[kDims];  // the largest key of a pair; kLargestKey divided by it
    float scale[kDims], zero[kDims];                 // scale and zero, in words
    const int16_t* offsets = nullptr;                // offsets that `turns` belongs to
    alignas(32) int16_t turns[kDims * kTurnTokens];  // [pair][token][cos, sin], in the order of channels
  };

  static bool fits(const AttentionArgs& a) {
    const LevelTiles& t = *a.tiles;
    return t.codes && t.key_tokens > 0 && a.head_dim % 32 == 0 && a.head_dim <= kDims;
  }

  // Fills kt[dim][token] with integer multiples of unit[dim]. Both dims of a pair have the same unit.
  static void load(const TileView& view, const KeyTurns& turns, Scratch& s, float* unit, float* kt) {
    const int bits = view.tiles.bits;
    const uint8_t* column = view.scales() + 2 * column_of(view);
    if (column != s.column) {
      s.column = column;
      find_ranges(view, turns, s);
      load_scales(view, turns, s, unit);
      bits == 2 ? make_tables<2>(view, s) : bits == 3 ? make_tables<3>(view, s) : make_tables<4>(view, s);
    }
    bits == 2 ? decode<2>(view, s) : bits == 3 ? decode<3>(view, s) : decode<4>(view, s);
    if (view.tiles.outliers > 0) place_outliers(view, s);
    if (turns.whole_offsets != s.offsets) join_offsets(turns, s);
    turn(turns, view.dims, s, kt);
  }

  // Writes the outliers into the rows of all tokens, if each group of values has one. Returns false, without a change,
  // if the groups are not whole vectors.
  static bool place_values(const TileView& view, float* rows, int64_t stride) {
    const LevelTiles& t = view.tiles;
    const int64_t groups = view.groups(), step = groups == 1 ? stride : t.group;
    if (t.outliers != 1 || (groups > 1 && stride != groups * t.group)) return false;
    const __m256i last = _mm256_set1_epi32(static_cast<int>((groups == 1 ? view.dims : t.group) - 1));
    const uint8_t* outliers = view.tile + t.outliers_at + 4 * view.first * groups;
    alignas(32) uint32_t place[8];
    alignas(32) float value[8];
    for (int64_t i = 0; i < groups * kTileTokens; i += 8) {
      const __m256i pairs = load_pairs(outliers, i);
      _mm256_store_si256(reinterpret_cast<__m256i*>(place), places_of(pairs, last));
      Eight::store(value, upper_halves(pairs));
#pragma GCC unroll 8
      for (int64_t j = 0; j < 8; ++j) rows[(i + j) * step + place[j]] = value[j];
    }
    return true;
  }

 private:
  static __m256 upper_halves(__m256i dwords) {
    const __m256i words = _mm256_srli_epi32(dwords, 16);
    return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  }
  static int64_t column_of(const TileView& view) { return view.first / view.tiles.key_tokens * view.dims; }
  static const uint8_t* outliers_of(const TileView& view) {
    return view.tile + view.tiles.outliers_at + 4 * view.tiles.outliers * column_of(view);
  }
  static __m256i load_pairs(const uint8_t* outliers, int64_t i) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(outliers + 4 * i));
  }

  static __m256i places_of(__m256i pairs, __m256i last) {
    return _mm256_min_epu32(_mm256_and_si256(pairs, _mm256_set1_epi32(0xffff)), last);
  }

  static int64_t first_of(const KeyTurns& turns, int64_t pair) { return turns.half ? pair : 2 * pair; }
  static int64_t second_of(const KeyTurns& turns, int64_t pair) {
    return turns.half ? pair + turns.pairs : 2 * pair + 1;
  }

  static void find_ranges(const TileView& view, const KeyTurns& turns, Scratch& s) {
    const uint8_t *scales = view.scales() + 2 * column_of(view), *zeros = view.zeros() + 2 * column_of(view);
    const int64_t outliers = view.tiles.outliers;
    for (int64_t d = 0; d < view.dims; d += 8) {
      __m256 most = Eight::add(Eight::abs(Eight::load_f16(scales + 2 * d)), Eight::abs(Eight::load_f16(zeros + 2 * d)));
      if (outliers == 1) most = Eight::max(Eight::abs(upper_halves(load_pairs(outliers_of(view), d))), most);
      Eight::store(s.range + d, most);
    }
    for (int64_t i = 0; outliers > 1 && i < outliers * view.dims; ++i) {
      const float size = __builtin_fabsf(Simd::f16(outliers_of(view) + 4 * i + 2));
      if (size > s.range[i / outliers]) s.range[i / outliers] = size;
    }
    if (turns.half && turns.pairs >= 8) {
      for (int64_t p = 0; p < turns.pairs; p += 8) {  // the last vector may overlap the one before it
        float* const x = s.range + (p + 8 < turns.pairs ? p : turns.pairs - 8);
        const __m256 most = Eight::max(Eight::load(x), Eight::load(x + turns.pairs));
        Eight::store(x, most);
        Eight::store(x + turns.pairs, most);
      }
      return;
    }
    for (int64_t p = 0; p < turns.pairs; ++p) {
      float &x = s.range[first_of(turns, p)], &y = s.range[second_of(turns, p)];
      x = y = x > y ? x : y;
    }
  }

  static void load_scales(const TileView& view, const KeyTurns& turns, Scratch& s, float* units) {
    const uint8_t *scales = view.scales() + 2 * column_of(view), *zeros = view.zeros() + 2 * column_of(view);
    for (int64_t d = 0; d < view.dims; d += 8) {
      const __m256 range = Eight::load(s.range + d);
      const __m256 empty = _mm256_cmp_ps(range, Eight::zero(), _CMP_EQ_OQ);
      const __m256 inverse = _mm256_andnot_ps(empty, Eight::div(Eight::set(kLargestKey), range));
      Eight::store(s.scale + d, Eight::mul(Eight::load_f16(scales + 2 * d), inverse));
      Eight::store(s.zero + d, Eight::mul(Eight::load_f16(zeros + 2 * d), inverse));
      const __m256 unit = Eight::mul(range, Eight::set(1 / (kLargestKey * kOne)));
      Eight::store(units + d, _mm256_blendv_ps(unit, Eight::set(1), empty));
      Eight::store(s.inverse + d, inverse);
    }
    for (int64_t d = 2 * turns.pairs; d < view.dims; ++d) units[d] *= kOne;  // these dims are not rotated
  }

  // Tables of fewer than 16 levels are repeated, so the other bits of a byte have no effect.
  template <int kBits>
  static void make_tables(const TileView& view, Scratch& s) {
    const float* codes = view.tiles.codes;
    const __m256 first = kBits == 2 ? _mm256_broadcast_ps(reinterpret_cast<const __m128*>(codes)) : Eight::load(codes);
    const __m256 second = kBits == 4 ? Eight::load(codes + 8) : first;
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (int64_t d = 0; d < view.dims; ++d) {
      const __m256 scale = Eight::set(s.scale[d]), zero = Eight::set(s.zero[d]);
      const auto whole = [&](__m256 code) { return _mm256_cvtps_epi32(Eight::fma(code, scale, zero)); };
      const __m256i words = _mm256_packs_epi32(whole(first), whole(second));
      const __m256i bytes =
          _mm256_packus_epi16(_mm256_and_si256(words, _mm256_set1_epi16(0xff)), _mm256_srli_epi16(words, 8));
      _mm256_store_si256(reinterpret_cast<__m256i*>(s.tables[d]), _mm256_permutevar8x32_epi32(bytes, order));
    }
  }
  static __m256i look_up(const uint8_t* table, __m256i levels) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table))),
                               levels);
  }

  // Returns level k of byte `byte` of a unit, in the lowest bits of each byte. Only the first four bits are used.
  template <int kBits>
  static __m256i level_of(const __m256i* unit, int byte, int k) {
    const __m256i low = _mm256_srli_epi16(unit[byte], k * (kBits == 4 ? 4 : 2));
    if constexpr (kBits != 3) return _mm256_and_si256(low, _mm256_set1_epi8(15));
    const __m256i tops = unit[8 + k];
    const __m256i top = byte < 2 ? _mm256_slli_epi16(tops, 2 - byte) : _mm256_srli_epi16(tops, byte - 2);
    return _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi8(3)), _mm256_and_si256(top, _mm256_set1_epi8(4)));
  }

  static void store_words(int16_t* to, __m256i x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x); }
  static __m256i load_words(const int16_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }

  // The last load of 16 bytes may reach beyond the levels, into the scales of the tile.
  template <int kBits>
  static void decode(const TileView& view, Scratch& s) {
    constexpr int kUnits = kBits == 3 ? 1 : 2, kShifts = kBits == 4 ? 2 : 4;  // kUnits: units in 16 bytes
    constexpr int64_t kUnitDims = affine_unit_values(kBits), kBytes = affine_unit_bytes(kBits);
    const int64_t units = view.dims / kUnitDims;
    for (int64_t first = 0; first < units; first += kUnits) {
      __m256i column[16];
      transpose_bytes([&](int64_t token) { return view.levels(token) + first * kBytes; }, column);
      for (int u = 0; u < kUnits && first + u < units; ++u) {
#pragma GCC unroll 8
        for (int byte = 0; byte < 8; ++byte) {
#pragma GCC unroll 4
          for (int k = 0; k < kShifts; ++k) {
            const int64_t d = (first + u) * kUnitDims + byte + 8 * k;
            const __m256i level = level_of<kBits>(column + 8 * u, byte, k);
            const __m256i low = look_up(s.tables[d], level), high = look_up(s.tables[d] + 16, level);
            store_words(s.channels + d * kTileTokens, _mm256_unpacklo_epi8(low, high));
            store_words(s.channels + d * kTileTokens + 16, _mm256_unpackhi_epi8(low, high));
          }
        }
      }
    }
  }

  // Returns the places of these tokens among the words of a channel, whose order after unpacking exchanges bits 2 and
  // 3.
  static __m256i place_of(__m256i token) {
    const __m256i other = _mm256_andnot_si256(_mm256_set1_epi32(12), token);
    const __m256i up = _mm256_slli_epi32(_mm256_and_si256(token, _mm256_set1_epi32(4)), 1);
    const __m256i down = _mm256_srli_epi32(_mm256_and_si256(token, _mm256_set1_epi32(8)), 1);
    return _mm256_or_si256(other, _mm256_or_si256(up, down));
  }

  // Returns the dims of outliers i to i + 7, in the order of the tile.
  static __m256i dims_of_outliers(int64_t i, int64_t outliers) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    if (outliers == 1) return _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(i)), lanes);
    alignas(32) int32_t each[8];
    for (int64_t j = 0; j < 8; ++j) each[j] = static_cast<int32_t>((i + j) / outliers);
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(each));
  }

  // Outliers of tokens outside the tile are written to the word that is never read. The last outliers are written
  // first, so that among equal places the first counts.
  static void place_outliers(const TileView& view, Scratch& s) {
    const LevelTiles& t = view.tiles;
    const __m256i first = _mm256_set1_epi32(static_cast<int>(view.first % t.key_tokens));
    const __m256i last = _mm256_set1_epi32(static_cast<int>(t.key_tokens - 1));  // a file may hold the tile
    const __m256i nowhere = _mm256_set1_epi32(kDims * kTileTokens);
    alignas(32) uint32_t at[8];
    alignas(32) int32_t value[8];
    for (int64_t i = t.outliers * view.dims - 8; i >= 0; i -= 8) {
      const __m256i pairs = load_pairs(outliers_of(view), i);
      const __m256i dim = dims_of_outliers(i, t.outliers);
      const __m256 inverse = t.outliers == 1 ? Eight::load(s.inverse + i) : _mm256_i32gather_ps(s.inverse, dim, 4);
      const __m256i token = _mm256_sub_epi32(places_of(pairs, last), first);
      const __m256i mine = _mm256_cmpeq_epi32(_mm256_srli_epi32(token, 5), _mm256_setzero_si256());
      const __m256i place = _mm256_add_epi32(_mm256_slli_epi32(dim, 5), place_of(token));
      _mm256_store_si256(reinterpret_cast<__m256i*>(at), _mm256_blendv_epi8(nowhere, place, mine));
      _mm256_store_si256(reinterpret_cast<__m256i*>(value),
                         _mm256_cvtps_epi32(Eight::mul(upper_halves(pairs), inverse)));
#pragma GCC unroll 8
      for (int64_t j = 7; j >= 0; --j) s.channels[at[j]] = static_cast<int16_t>(value[j]);
    }
  }

  // This permutation is its own inverse.
  static __m256i in_order(__m256i words) { return _mm256_permute4x64_epi64(words, 0xd8); }

  // Computes exact sums of two products of words, for 16 tokens.
  static void put_products(float* to, __m256i a, __m256i b, __m256i low, __m256i high) {
    Eight::store(to, _mm256_cvtepi32_ps(_mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), low)));
    Eight::store(to + 8, _mm256_cvtepi32_ps(_mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), high)));
  }

  static void join_offsets(const KeyTurns& turns, Scratch& s) {
    s.offsets = turns.whole_offsets;
    for (int64_t i = 0; i < turns.pairs * kTurnTokens; i += 16) {
      const int16_t* offset = turns.whole_offsets + i + i / kTurnTokens * kTurnTokens;
      const __m256i cos = in_order(load_words(offset)), sin = in_order(load_words(offset + kTurnTokens));
      store_words(s.turns + 2 * i, _mm256_unpacklo_epi16(cos, sin));
      store_words(s.turns + 2 * i + 16, _mm256_unpackhi_epi16(cos, sin));
    }
  }

  static void turn(const KeyTurns& turns, int64_t dims, const Scratch& s, float* kt) {
    const int16_t* channels = s.channels;
    for (int64_t p = 0; p < turns.pairs; ++p) {
      const int64_t at = first_of(turns, p) * kTileTokens, other = second_of(turns, p) * kTileTokens;
      const int16_t* own = s.turns + 2 * p * kTurnTokens;
#pragma GCC unroll 2
      for (int64_t i = 0; i < kTileTokens; i += 16) {
        const __m256i x = load_words(channels + at + i), y = load_words(channels + other + i);
        const __m256i low = load_words(own + 2 * i), high = load_words(own + 2 * i + 16);
        put_products(kt + at + i, x, _mm256_sub_epi16(_mm256_setzero_si256(), y), low, high);
        put_products(kt + other + i, y, x, low, high);
      }
    }
    for (int64_t i = 2 * turns.pairs * kTileTokens; i < dims * kTileTokens; i += 16) {
      const __m256i words = in_order(load_words(channels + i));
      Eight::store(kt + i, _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(words))));
      Eight::store(kt + i + 8, _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm256_extracti128_si256(words, 1))));
    }
  }
};

}  // namespace
}  // namespace millrace
