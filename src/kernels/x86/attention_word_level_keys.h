// Computes the scores of keys that are stored before RoPE, in 16-bit words (attention_word_levels.h). Include after
// attention_word_level_units.h.
#pragma once

#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

// The two dims of a pair that RoPE rotates.
struct PairDims {
  int64_t x, y;
  PairDims(const KeyTurns& turns, int64_t p) {
    x = turns.half ? p : 2 * p;
    y = turns.half ? p + turns.pairs : 2 * p + 1;
  }
};

// Encoded keys whose columns share scales.
struct KeyColumns {
  const uint8_t* tile;
  int64_t first;  // index of the first token in the tile
  int64_t tokens;
};

// Loads scales and zeros as integers, relative to the largest key. Returns the value of the integer 1.
inline float load_key_scales(const AttentionArgs& a, const KeyColumns& keys, WordScratch& b) {
  const LevelTiles& t = *a.tiles;
  const int64_t column = keys.first / t.key_tokens * a.head_dim;
  const auto halves = [&](int64_t at, int64_t d) { return Simd::load_f16(keys.tile + at + 2 * (column + d)); };
  __m512 most = _mm512_setzero_ps();
  for (int64_t d = 0; d < a.head_dim; d += 16)
    most = Simd::max(most, Simd::add(Simd::abs(halves(t.scales_at, d)), Simd::abs(halves(t.zeros_at, d))));
  const uint8_t* outliers = keys.tile + t.outliers_at + 4 * t.outliers * column;
  for (int64_t i = 0; i < t.outliers * a.head_dim; i += 16) {
    const __m512i value = _mm512_srli_epi32(_mm512_loadu_si512(outliers + 4 * i), 16);
    most = Simd::max(most, Simd::abs(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(value))));
  }
  const float largest = Simd::largest(most);
  const __m512 inverse = _mm512_set1_ps(largest > 0 ? kLargestKey / largest : 0);
  const __m512 twice = _mm512_add_ps(inverse, inverse);
  const auto words = [](__m512 x) {
    const __m512i whole = _mm512_cvtps_epi32(x);
    return pair_words(whole, whole);
  };
  for (int64_t d = 0; d < a.head_dim; d += 16) {
    // Multiplied by 2, because codes are half as large as 15-bit fractions; limited to a word.
    const __m512 scale = Simd::min(_mm512_mul_ps(halves(t.scales_at, d), twice), _mm512_set1_ps(32767));
    _mm512_store_si512(b.scale_words + d, words(scale));
    _mm512_store_si512(b.zero_words + d, words(_mm512_mul_ps(halves(t.zeros_at, d), inverse)));
  }
  return largest * (1 / kLargestKey);
}

// Sets words[c] to dword c of the even tokens of 32: lane i is from token 2 i.
inline void transpose_even(const uint8_t* levels, int64_t stride, __m512i* words) {
  const auto four = [&](int64_t token) { return load_tokens(levels + token * stride, 8 * stride); };
  const __m512i a = four(0), b = four(2), c = four(4), d = four(6);
  const __m512i ab_low = _mm512_unpacklo_epi32(a, b), ab_high = _mm512_unpackhi_epi32(a, b);
  const __m512i cd_low = _mm512_unpacklo_epi32(c, d), cd_high = _mm512_unpackhi_epi32(c, d);
  words[0] = _mm512_unpacklo_epi64(ab_low, cd_low);
  words[1] = _mm512_unpackhi_epi64(ab_low, cd_low);
  words[2] = _mm512_unpacklo_epi64(ab_high, cd_high);
  words[3] = _mm512_unpackhi_epi64(ab_high, cd_high);
}

// 16 bytes of each of 32 tokens: word[i] has bytes 2 i and 2 i + 1 of every token.
struct TokenWords {
  __m512i word[8];
  [[gnu::always_inline]] TokenWords(const uint8_t* levels, int64_t stride) {
    __m512i even[4], odd[4];
    transpose_even(levels, stride, even);
    transpose_even(levels + stride, stride, odd);
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      word[2 * c] = pair_words(even[c], odd[c]);
      word[2 * c + 1] = _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(even[c], 16), odd[c]);
    }
  }
};

// Returns level k of byte `byte` of a unit that begins at word `from`, in the lowest bits of each word.
template <int kBits>
inline __m512i level_of(const TokenWords& t, int from, int byte, int k) {
  const int at = byte % 2 * 8 + k * WordUnit<kBits>::kStep;
  const __m512i low = _mm512_srli_epi16(t.word[from + byte / 2], static_cast<unsigned>(at));
  if constexpr (kBits != 3) return low;
  const __m512i tops = t.word[from + 4 + k / 2];
  const int bit = k % 2 * 8 + byte;
  return with_top_bit(low, bit < 2 ? _mm512_slli_epi16(tops, static_cast<unsigned>(2 - bit))
                                   : _mm512_srli_epi16(tops, static_cast<unsigned>(bit - 2)));
}

// Decodes the keys of kChunks * 32 tokens to words.
template <int kBits, int kChunks>
void decode_channels(const uint8_t* levels, int64_t stride, int64_t dims, __m512i codes, int64_t lines, WordScratch& b,
                     TokenChannels* out) {
  using Unit = WordUnit<kBits>;
  const int64_t units = dims / Unit::kDims;
  for (int64_t first = 0; first < units; first += Unit::kUnits) {
    b.ahead.ask_lines(lines);
    const uint8_t* from = levels + first * Unit::kBytes;
    const TokenWords chunk[2] = {{from, stride}, {from + (kChunks - 1) * kSharedTokens * stride, stride}};
#pragma GCC unroll 2
    for (int u = 0; u < Unit::kUnits; ++u) {
      if (u > 0 && first + 1 == units) break;
      const int64_t d = (first + u) * Unit::kDims;
#pragma GCC unroll 8
      for (int byte = 0; byte < 8; ++byte) {
#pragma GCC unroll 4
        for (int k = 0; k < Unit::kShifts; ++k) {
          const int64_t dim = d + byte + 8 * k;
          const __m512i table = _mm512_add_epi16(_mm512_mulhrs_epi16(codes, _mm512_set1_epi32(b.scale_words[dim])),
                                                 _mm512_set1_epi32(b.zero_words[dim]));
#pragma GCC unroll 2
          for (int c = 0; c < kChunks; ++c)
            _mm512_store_si512(out[c].word[dim], look_up_words(level_of<kBits>(chunk[c], 4 * u, byte, k), table));
        }
      }
    }
  }
}

// Replaces decoded levels by outliers. The last outliers are written first, so that among equal places the first
// outlier counts.
inline void place_key_outliers(const AttentionArgs& a, const KeyColumns& keys, float unit, TokenChannels* channels) {
  const LevelTiles& t = *a.tiles;
  const uint8_t* outliers = keys.tile + t.outliers_at + 4 * t.outliers * (keys.first / t.key_tokens * a.head_dim);
  const __m512 inverse = _mm512_set1_ps(unit > 0 ? 1 / unit : 0);
  int16_t* words = channels->word[0];
  alignas(64) int32_t place[16], value[16];  // place: in words from the first token of the channel
  const auto load = [&](int64_t i) {
    const __m512i pairs = _mm512_loadu_si512(outliers + 4 * i);
    const __m512 x = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(pairs, 16)));
    const __m512i last = _mm512_set1_epi32(static_cast<int>(keys.tokens - 1));  // a file may hold the tile
    const __m512i token = _mm512_min_epu32(_mm512_and_si512(pairs, _mm512_set1_epi32(0xffff)), last);
    const __m512i chunk = _mm512_mullo_epi32(_mm512_srli_epi32(token, 5), _mm512_set1_epi32(kMaxTilesHeadDim * 32));
    _mm512_store_si512(place, _mm512_add_epi32(chunk, _mm512_and_si512(token, _mm512_set1_epi32(31))));
    _mm512_store_si512(value, _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse)));
  };
  if (t.outliers == 1) {  // in order, so that the first channels, which are read next, are written first
    for (int64_t i = 0; i < a.head_dim; i += 16, words += 16 * kSharedTokens) {
      load(i);
#pragma GCC unroll 16
      for (int64_t j = 0; j < 16; ++j) words[j * kSharedTokens + place[j]] = static_cast<int16_t>(value[j]);
    }
    return;
  }
  for (int64_t i = t.outliers * a.head_dim - 16; i >= 0; i -= 16) {
    load(i);
    for (int64_t j = 15; j >= 0; --j)
      words[(i + j) / t.outliers * kSharedTokens + place[j]] = static_cast<int16_t>(value[j]);
  }
}

// Rotates the keys of 32 tokens by their places among these tokens, kPairs pairs of dims at a time. Calls use(p, p %
// kPairs, low, high) for each pair p; low and high have the words x, y of 16 tokens each. kPairs divides the number of
// pairs.
template <int kPairs, typename Use>
[[gnu::always_inline]] inline void for_rotated_pairs(const KeyTurns& turns, int64_t pairs,
                                                     const TokenChannels& channels, const Use& use) {
  const int64_t rotated = turns.pairs;
  const int64_t step = PairDims(turns, 1).x * kSharedTokens, apart = PairDims(turns, 0).y * kSharedTokens;
  const int16_t *x_words = channels.word[0], *turn = turns.whole_offsets;
  for (int64_t p = 0; p < rotated; p += kPairs) {
#pragma GCC unroll 4
    for (int i = 0; i < kPairs; ++i, x_words += step, turn += 2 * kTurnTokens) {
      const __m512i x = _mm512_load_si512(x_words), y = _mm512_load_si512(x_words + apart);
      const __m512i cos = _mm512_loadu_si512(turn), sin = _mm512_loadu_si512(turn + kTurnTokens);
      const __m512i u = _mm512_sub_epi16(_mm512_mulhrs_epi16(x, cos), _mm512_mulhrs_epi16(y, sin));
      const __m512i v = _mm512_add_epi16(_mm512_mulhrs_epi16(x, sin), _mm512_mulhrs_epi16(y, cos));
      use(p + i, i, _mm512_unpacklo_epi16(u, v), _mm512_unpackhi_epi16(u, v));
    }
  }
  for (int64_t p = rotated; p < pairs; p += kPairs) {
#pragma GCC unroll 4
    for (int i = 0; i < kPairs; ++i) {
      const __m512i x = _mm512_load_si512(channels.word[2 * (p + i)]),
                    y = _mm512_load_si512(channels.word[2 * (p + i) + 1]);
      use(p + i, i, _mm512_unpacklo_epi16(x, y), _mm512_unpackhi_epi16(x, y));
    }
  }
}

// Writes the rotated pairs of 32 tokens.
inline void rotate_channels(const KeyTurns& turns, int64_t pairs, const TokenChannels& channels, uint8_t* out) {
  for_rotated_pairs<2>(turns, pairs, channels, [&](int64_t p, int, __m512i low, __m512i high) {
    _mm512_store_si512(out + p * 128, low);
    _mm512_store_si512(out + p * 128 + 64, high);
  });
}

// Decodes keys [begin, end) of the partition, which must share scales, to channels. Returns the channels of the first
// 32 keys.
template <int kBits>
const TokenChannels* decode_key_channels(const AttentionArgs& a, int64_t begin, int64_t end, __m512i codes,
                                         WordScratch& b) {
  const LevelTiles& t = *a.tiles;
  const int64_t runs = (a.head_dim / WordUnit<kBits>::kDims + WordUnit<kBits>::kUnits - 1) / WordUnit<kBits>::kUnits;
  const TilePlace at = b.key_at[begin / kSharedTokens];
  const int64_t within = at.first % t.key_tokens;
  const KeyColumns keys{at.tile, at.first - within, t.key_tokens};
  const float unit = load_key_scales(a, keys, b);
  for (int64_t key = begin; key < end;) {
    const int64_t token = key - begin + within;
    const uint8_t* levels = keys.tile + (keys.first + token) * t.stride;
    TokenChannels* to = b.channels + token / kSharedTokens;
    const int64_t lines = (4 * b.lines + runs - 1) / runs;
    if (key + 2 * kSharedTokens <= end) {
      decode_channels<kBits, 2>(levels, t.stride, a.head_dim, codes, 2 * lines, b, to);
      key += 2 * kSharedTokens;
    } else {
      decode_channels<kBits, 1>(levels, t.stride, a.head_dim, codes, lines, b, to);
      key += kSharedTokens;
    }
  }
  if (t.outliers > 0) place_key_outliers(a, keys, unit, b.channels);
  for (int64_t key = begin; key < end; key += kSharedTokens) b.key_unit[key / kSharedTokens] = unit;
  return b.channels + within / kSharedTokens;
}

// Decodes keys [begin, end) of the partition, which must share scales, and writes them rotated to `out`.
template <int kBits>
void decode_key_words(const AttentionArgs& a, int64_t begin, int64_t end, __m512i codes, WordScratch& b, uint8_t* out) {
  const int64_t pairs = a.head_dim / 2;
  const TokenChannels* channels = decode_key_channels<kBits>(a, begin, end, codes, b);
  for (int64_t key = begin; key < end; key += kSharedTokens, out += pairs * 128) {
    b.ahead.ask_lines(4 * b.lines);
    rotate_channels(*a.tiles->turns, pairs, *channels++, out);
  }
}

// Returns the end of the keys that share scales with `key`, at most `end`.
inline int64_t end_of_scales(const AttentionArgs& a, int64_t key, int64_t end) {
  const int64_t next = (key / a.tiles->key_tokens + 1) * a.tiles->key_tokens;
  return next < end ? next : end;
}

// Loads the cosines and sines for the first position of each 32 tokens; 1 and 0 for dims that are not rotated.
inline void load_turns(const AttentionArgs& a, int64_t begin, int64_t end, WordScratch& b) {
  const KeyTurns& turns = *a.tiles->turns;
  for (int64_t key = begin; key < end; key += kSharedTokens) {
    const int64_t slot = a.key_begin + key;
    const float* block = turns.blocks + 2 * place_of_block(a, slot) * turns.pairs;
    const float* row = turns.rows + 2 * (slot % a.block_tokens) * turns.pairs;
    float *cos = b.turn[key / kSharedTokens][0], *sin = b.turn[key / kSharedTokens][1];
    for (int64_t p = 0; p < turns.pairs; p += 16) {
      const __m512 c = Simd::load(block + p), s = Simd::load(block + turns.pairs + p);
      const __m512 dc = Simd::load(row + p), ds = Simd::load(row + turns.pairs + p);
      _mm512_store_ps(cos + p, Simd::fnma(s, ds, Simd::mul(c, dc)));
      _mm512_store_ps(sin + p, Simd::fma(s, dc, Simd::mul(c, ds)));
    }
    for (int64_t p = turns.pairs; p < a.head_dim / 2; p += 16) {
      _mm512_store_ps(cos + p, _mm512_set1_ps(1));
      _mm512_store_ps(sin + p, _mm512_setzero_ps());
    }
  }
}

// Splits a row's query into pairs and scales it to the range of integers, without rounding.
inline void split_query(const AttentionArgs& a, int64_t row, int64_t r, WordScratch& b) {
  const KeyTurns& turns = *a.tiles->turns;
  const float* q = query_of(a, row + r);
  const int64_t pairs = a.head_dim / 2;
  __m512 most = _mm512_setzero_ps(), sum = _mm512_setzero_ps();
  for (int64_t p = 0; p < pairs; p += 16) {
    __m512 x, y;
    if (turns.half && p < turns.pairs)
      x = Simd::load(q + p), y = Simd::load(q + turns.pairs + p);
    else
      Simd::split_pairs(Simd::load(q + 2 * p), Simd::load(q + 2 * p + 16), x, y);
    _mm512_store_ps(b.query_x[r] + p, x);
    _mm512_store_ps(b.query_y[r] + p, y);
    const __m512 length = _mm512_sqrt_ps(Simd::fma(x, x, Simd::mul(y, y)));
    most = Simd::max(most, length);
    sum = Simd::add(sum, length);
  }
  float unit = Simd::sum(sum) / kMaxQuery;  // NaN if the query has a NaN
  const float least = Simd::largest(most) / kLargestWord;
  if (least > unit) unit = least;
  if (unit < kMinRange) unit = 0;
  b.query_unit[r] = unit;
  const __m512 inverse = _mm512_set1_ps(unit == 0 ? 0 : 1 / unit);
  for (int64_t p = 0; p < pairs; p += 16) {
    _mm512_store_ps(b.query_x[r] + p, _mm512_mul_ps(_mm512_load_ps(b.query_x[r] + p), inverse));
    _mm512_store_ps(b.query_y[r] + p, _mm512_mul_ps(_mm512_load_ps(b.query_y[r] + p), inverse));
  }
}

// Rotates the rows' queries back by the position of the 32 tokens from `key` on.
inline void turn_queries(int64_t rows, int64_t pairs, int64_t key, WordScratch& b) {
  const float *cos = b.turn[key / kSharedTokens][0], *sin = b.turn[key / kSharedTokens][1];
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t p = 0; p < pairs; p += 16) {
      const __m512 x = _mm512_load_ps(b.query_x[r] + p), y = _mm512_load_ps(b.query_y[r] + p);
      const __m512 c = _mm512_load_ps(cos + p), s = _mm512_load_ps(sin + p);
      const __m512i u = _mm512_cvtps_epi32(Simd::fma(y, s, Simd::mul(x, c)));
      const __m512i v = _mm512_cvtps_epi32(Simd::fnma(x, s, Simd::mul(y, c)));
      _mm512_store_si512(b.query[r] + p, pair_words(u, v));
    }
  }
}

// Converts a row's integer sums for 32 keys to scores.
inline void store_scores(__m512i low, __m512i high, float stands_for, float* out) {
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
  const auto store = [&](float* to, __m512i order) {
    const __m512i sums = _mm512_permutex2var_epi32(low, order, high);
    _mm512_store_ps(to, _mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_set1_ps(stands_for)));
  };
  store(out, first);
  store(out + kVectorKeys, second);
}

// Multiplies 32 keys by kRows rows. Integer sums are exact, so two rows can use several sums each to hide the latency.
template <int kRows>
void score_words(const uint8_t* keys, int64_t pairs, int64_t row, float unit, const WordScratch& b, float* out) {
  constexpr int kSums = kRows == 2 ? 2 : 1;
  __m512i sum[kRows][kSums][2];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int i = 0; i < kSums; ++i) sum[r][i][0] = sum[r][i][1] = _mm512_setzero_si512();
  }
  for (int64_t p = 0; p < pairs; p += kSums) {
#pragma GCC unroll 2
    for (int i = 0; i < kSums; ++i, keys += 128) {
      const __m512i low = _mm512_load_si512(keys), high = _mm512_load_si512(keys + 64);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        const __m512i q = _mm512_set1_epi32(b.query[row + r][p + i]);
        sum[r][i][0] = add_word_products(sum[r][i][0], low, q);
        sum[r][i][1] = add_word_products(sum[r][i][1], high, q);
      }
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r, out += kScoreStride) {
#pragma GCC unroll 2
    for (int i = 1; i < kSums; ++i) {
      sum[r][0][0] = _mm512_add_epi32(sum[r][0][0], sum[r][i][0]);
      sum[r][0][1] = _mm512_add_epi32(sum[r][0][1], sum[r][i][1]);
    }
    store_scores(sum[r][0][0], sum[r][0][1], unit * b.query_unit[row + r], out);
  }
}

// Multiplies 32 keys by one row while they are rotated.
inline void score_channels(const KeyTurns& turns, int64_t pairs, const TokenChannels& channels, float unit,
                           const WordScratch& b, float* out) {
  __m512i sum[4][2];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) sum[i][0] = sum[i][1] = _mm512_setzero_si512();
  for_rotated_pairs<4>(turns, pairs, channels, [&](int64_t p, int i, __m512i low, __m512i high) {
    const __m512i q = _mm512_set1_epi32(b.query[0][p]);
    sum[i][0] = add_word_products(sum[i][0], low, q);
    sum[i][1] = add_word_products(sum[i][1], high, q);
  });
  const auto all = [&](int half) {
    return _mm512_add_epi32(_mm512_add_epi32(sum[0][half], sum[1][half]), _mm512_add_epi32(sum[2][half], sum[3][half]));
  };
  store_scores(all(0), all(1), unit * b.query_unit[0], out);
}

// Computes the scores of a stream's first tokens, whose keys are stored as rows of f16 after RoPE.
inline void score_sinks(const AttentionArgs& a, int64_t row, int64_t rows, int64_t begin, int64_t end, Bf16Scratch& s) {
  const int64_t sinks = a.tiles->sink_tokens - a.key_begin;  // number of such first tokens in the partition
  for (int64_t key = begin; key < sinks && key < end; ++key) {
    const uint8_t* k = a.k_blocks[0] + a.tiles->sink_at + 2 * key * a.head_dim;
    for (int64_t r = 0; r < rows; ++r) {
      const float* q = query_of(a, row + r);
      __m512 sum = _mm512_setzero_ps();
      for (int64_t d = 0; d < a.head_dim; d += 16) sum = Simd::fma(Simd::load(q + d), Simd::load_f16(k + 2 * d), sum);
      s.score[r * kScoreStride + key] = Simd::sum(sum);
    }
  }
}

// Computes the scores of the encoded keys [begin, end), which are whole chunks. `from`: first key of those that are
// already decoded; negative: none are.
template <int kBits>
void score_word_levels(const AttentionArgs& a, int64_t row, int64_t rows, int64_t begin, int64_t end, int64_t from,
                       Bf16Scratch& s, WordScratch& b) {
  const int64_t pairs = a.head_dim / 2, place_bytes = pairs * 128;
  const __m512i codes = code_words<kBits>(a.tiles->codes, kLargestKey);
  for (int64_t r = 0; r < rows; ++r) split_query(a, row, r, b);
  for (int64_t key = begin; key < end;) {
    const int64_t stop = end_of_scales(a, key, end);
    if (rows == 1 && from < 0) {
      const TokenChannels* channels = decode_key_channels<kBits>(a, key, stop, codes, b);
      for (; key < stop; key += kSharedTokens) {
        b.ahead.ask_lines(4 * b.lines);
        turn_queries(1, pairs, key, b);
        score_channels(*a.tiles->turns, pairs, *channels++, b.key_unit[key / kSharedTokens], b, s.score + key);
      }
      continue;
    }
    const uint8_t* keys = b.keys;
    if (from < 0)
      decode_key_words<kBits>(a, key, stop, codes, b, b.keys);
    else
      keys += (key - from) / kSharedTokens * place_bytes;
    for (; key < stop; key += kSharedTokens, keys += place_bytes) {
      turn_queries(rows, pairs, key, b);
      in_twelves(rows, [&]<int n>(int64_t r) {
        score_words<n>(keys, pairs, r, b.key_unit[key / kSharedTokens], b, s.score + r * kScoreStride + key);
      });
    }
  }
  if (a.tiles->sink_tokens > a.key_begin) score_sinks(a, row, rows, begin, end, s);
}

}  // namespace
}  // namespace millrace
