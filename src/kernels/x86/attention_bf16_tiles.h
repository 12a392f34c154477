// How stored keys and values reach the registers of the bf16 attention kernel (attention_bf16.h): read as bf16, keys
// transposed, values interleaved. Include after simd_avx512.h and
// attention_ahead.h.
//
// A word is two bf16: vdpbf16ps multiplies the words of two vectors and adds both products to an f32 lane.
//
//   keys    a chunk is 32 keys: for each pair of dims, 2 vectors of 16 words
//             [chunk][dims 2i, 2i + 1][32 keys]                       a lane per key, the query's word broadcast
//   values  a group is 32 dims: for each pair of keys, the words of 16 dims and of the other 16
//             [group of 32 dims][keys 2j, 2j + 1][low 16][high 16]    a lane per dim, the weights' word broadcast
//
// "Low" and "high" are what two unpack instructions give, so dims are out of order until the sums are stored:
//
//   low   dims 0-3   8-11  16-19  24-27
//   high  dims 4-7  12-15  20-23  28-31
#pragma once

#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

constexpr int64_t kKeyChunk = 32;
constexpr int64_t kDimGroup = 32;
constexpr int64_t kBf16MaxHeadDim = 256;
constexpr int64_t kPairs = kAttentionPartition / 2;   // of keys in a partition
constexpr int64_t kPairBytes = 128;                   // of a pair of dims of a chunk, of a pair of keys of a group
constexpr int64_t kGroupBytes = kPairs * kPairBytes;  // one group of dims of a partition's values

// 32 stored values, or the last n of a row and zeros behind them, as bf16 rounded to nearest even.
struct ReadBf16 {
  static constexpr const char* kName = "bf16";
  static constexpr bool kAsStored = true;
  static constexpr int kLines = 2;  // of memory that 64 values are
  static __m512i load(const uint8_t* row, int64_t d) { return _mm512_loadu_si512(row + d * 2); }
  static __m512i load_n(const uint8_t* row, int64_t d, int64_t n) {
    return _mm512_maskz_loadu_epi16((1u << n) - 1, row + d * 2);
  }
};

inline __m512i round_to_bf16(__m512 low, __m512 high) {
  const __m512bh words = _mm512_cvtne2ps_pbh(high, low);
  __m512i out;
  std::memcpy(&out, &words, sizeof out);
  return out;
}

struct ReadF16 {
  static constexpr const char* kName = "f16";
  static constexpr bool kAsStored = false;
  static constexpr int kLines = 2;
  static __m512i load(const uint8_t* row, int64_t d) {
    return round_to_bf16(Simd::load_f16(row + d * 2), Simd::load_f16(row + d * 2 + 32));
  }
  static __m512i load_n(const uint8_t* row, int64_t d, int64_t n) {
    const __m512i halves = _mm512_maskz_loadu_epi16((1u << n) - 1, row + d * 2);
    return round_to_bf16(_mm512_cvtph_ps(_mm512_castsi512_si256(halves)),
                         _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1)));
  }
};

struct ReadQ8 {  // blocks of 32 values in 34 bytes: f16 scale, then 32 int8
  static constexpr const char* kName = "q8_0";
  static constexpr bool kAsStored = false;
  static constexpr int kLines = 1;  // and a sixteenth
  static __m512i load(const uint8_t* row, int64_t d) {
    const uint8_t* block = row + d / 32 * 34;
    int16_t half;
    std::memcpy(&half, block, sizeof half);
    const __m512 scale = _mm512_cvtph_ps(_mm256_set1_epi16(half));
    return round_to_bf16(_mm512_mul_ps(scale, Simd::load_i8(block + 2)),
                         _mm512_mul_ps(scale, Simd::load_i8(block + 18)));
  }
  static __m512i load_n(const uint8_t* row, int64_t d, int64_t) { return load(row, d); }  // rows are whole blocks
};

// 16 keys into their half of a chunk. `rows` is room for 16 rows of padded bf16.
template <typename Kv>
void transpose_keys(const uint8_t* const* keys, int64_t head_dim, int64_t padded, uint8_t* rows, uint8_t* chunk,
                    Ahead& ahead) {
  const uint8_t* row[16];
  const bool as_stored = Kv::kAsStored && head_dim == padded;
  for (int64_t j = 0; j < 16; ++j) {
    row[j] = keys[j];
    if (as_stored) continue;
    uint8_t* out = rows + j * padded * 2;
    for (int64_t d = 0; d < padded; d += kDimGroup) {
      if (d % 64 == 0) ahead.ask<1>();
      const bool whole = d + kDimGroup <= head_dim;
      _mm512_store_si512(out + d * 2, whole ? Kv::load(keys[j], d) : Kv::load_n(keys[j], d, head_dim - d));
    }
    row[j] = out;
  }
  for (int64_t pair = 0; pair < padded / 2; pair += 4) {  // the other half of what 16 keys are, or all of it
    if (as_stored) {
      ahead.ask<4>();
    } else if (Kv::kLines == 2) {
      ahead.ask<2>();
    } else if (pair % 16 == 0) {
      ahead.ask<1>();
    }
    __m512 word[4];
    Simd::transpose_words(row, pair * 4, word);
    for (int64_t c = 0; c < 4; ++c) _mm512_store_ps(chunk + (pair + c) * kPairBytes, word[c]);
  }
}

inline void interleave_keys(__m512i even, __m512i odd, __m512i& low, __m512i& high) {
  low = _mm512_unpacklo_epi16(even, odd);
  high = _mm512_unpackhi_epi16(even, odd);
}

// Values of the pairs [begin, end) into their groups. Returns whether all are finite.
template <typename Kv>
bool interleave_values(const uint8_t* const* value, int64_t begin, int64_t end, int64_t head_dim, uint8_t* groups,
                       Ahead& ahead) {
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  __mmask32 wild = 0;
  for (int64_t pair = begin; pair < end; ++pair) {
    for (int64_t d = 0; d < head_dim; d += kDimGroup) {
      ahead.ask<Kv::kLines>();
      __m512i row[2];
      for (int64_t k = 0; k < 2; ++k) {
        const uint8_t* from = value[2 * pair + k];
        row[k] = d + kDimGroup <= head_dim ? Kv::load(from, d) : Kv::load_n(from, d, head_dim - d);
        wild |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(row[k], exponent), exponent);
      }
      __m512i low, high;
      interleave_keys(row[0], row[1], low, high);
      uint8_t* out = groups + d / kDimGroup * kGroupBytes + pair * kPairBytes;
      _mm512_store_si512(out, low);
      _mm512_store_si512(out + 64, high);
    }
  }
  return wild == 0;
}

// Where the value kernel finds its words: in a tile, or straight in the stored rows when few query rows use them.
struct TileValues {
  static constexpr int kLines = 0;  // to ask memory for
  const uint8_t* group;
  void load(int64_t pair, int64_t g, __m512i& low, __m512i& high) const {
    const uint8_t* words = group + g * kGroupBytes + pair * kPairBytes;
    low = _mm512_load_si512(words);
    high = _mm512_load_si512(words + 64);
  }
};

template <typename Kv>
struct StoredValues {
  static constexpr int kLines = Kv::kLines;
  const uint8_t* const* value;
  int64_t first_dim;
  void load(int64_t pair, int64_t g, __m512i& low, __m512i& high) const {
    const int64_t d = first_dim + g * kDimGroup;
    interleave_keys(Kv::load(value[2 * pair], d), Kv::load(value[2 * pair + 1], d), low, high);
  }
};

}  // namespace
}  // namespace millrace
