// Loads stored keys and values as bf16 for the bf16 attention kernel (attention_bf16.h). Keys are transposed; values
// are interleaved. Include after simd_avx512.h and attention_ahead.h.
//
// A word is two bf16: vdpbf16ps multiplies the words of two vectors and adds both products to an f32 lane.
//
//   keys    a chunk is 32 keys: for each pair of dims, 2 vectors of 16 words
//             [chunk][dims 2i, 2i + 1][32 keys]                       a lane per key, the query's word broadcast
//   values  a group is 32 dims: for each pair of keys, the words of 16 dims and of the other 16
//             [group of 32 dims][keys 2j, 2j + 1][low 16][high 16]    a lane per dim, the weights' word broadcast
//
// "Low" and "high" are the results of two unpack instructions, so dims have this order until the sums are stored:
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
constexpr int64_t kBf16MaxHeadDim = 576;
constexpr int64_t kPairs = kAttentionPartition / 2;  // pairs of keys in a partition
constexpr int64_t kPairBytes = 128;  // bytes of a pair of dims in a chunk, or of a pair of keys in a group
constexpr int64_t kGroupBytes = kPairs * kPairBytes;  // one group of dims of a partition's values

// Readers of stored values. load() returns 32 values as bf16, rounded to nearest even; load_n() returns the last n
// values of a row, padded with zeros.
struct ReadBf16 {
  static constexpr const char* kName = "bf16";
  static constexpr int kLines = 2;  // cache lines per 64 values
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
  static constexpr int kLines = 1;  // number of lines read, without a sixteenth
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

// Reads blocks of KvNibbles. A block has few different values, so its levels are looked up in a table of them, which is
// rounded once.
template <typename Kv>
struct ReadNibbles {
  static constexpr const char* kName = Kv::kName;
  static constexpr int kLines = 1;
  static constexpr bool kMinimum = Kv::kFifthAt == 4, kFifth = Kv::kLevelsAt > Kv::kFifthAt;
  static __m512i load(const uint8_t* row, int64_t d) {
    const uint8_t* block = row + d / 32 * Kv::kBytes;
    const auto broadcast = [block](int64_t at) {
      int16_t half;
      std::memcpy(&half, block + at, sizeof half);
      return _mm512_cvtph_ps(_mm256_set1_epi16(half));
    };
    const __m512 scale = broadcast(0), minimum = kMinimum ? broadcast(2) : _mm512_setzero_ps();
    const __m512 levels = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512 low = Kv::value(levels, scale, minimum);
    const __m512 high = kFifth ? Kv::value(_mm512_add_ps(levels, _mm512_set1_ps(16)), scale, minimum) : low;
    const __m256i words =
        _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block + Kv::kLevelsAt)));
    __m512i index = _mm512_inserti64x4(_mm512_castsi256_si512(words), _mm256_srli_epi16(words, 4), 1);
    if constexpr (kFifth) {  // otherwise both halves of the table are equal, and bit 4 has no effect
      uint32_t fifth;
      std::memcpy(&fifth, block + Kv::kFifthAt, sizeof fifth);
      index = _mm512_and_si512(index, _mm512_set1_epi16(15));
      index = _mm512_mask_add_epi16(index, fifth, index, _mm512_set1_epi16(16));
    }
    return _mm512_permutexvar_epi16(index, round_to_bf16(low, high));
  }
  static __m512i load_n(const uint8_t* row, int64_t d, int64_t) { return load(row, d); }  // rows are whole blocks
};

// Reads 8-bit floats exactly. The 4 exponent bits and 3 mantissa bits are moved to their places in a bf16, and the
// exponent's bias is changed. Subnormal values (eighths of 2^-6) are looked up in a table.
struct ReadF8 {
  static constexpr const char* kName = KvF8::kName;
  static constexpr int kLines = 1;
  static __m512i of_bytes(__m256i bytes) {
    const __m512i words = _mm512_cvtepu8_epi16(bytes);
    const __m512i size = _mm512_add_epi16(_mm512_slli_epi16(_mm512_and_si512(words, _mm512_set1_epi16(0x7f)), 4),
                                          _mm512_set1_epi16((127 - 7) << 7));
    const __m512i tiny =
        _mm512_castsi128_si512(_mm_setr_epi16(0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60));  // n / 512
    const __mmask32 is_tiny = _mm512_testn_epi16_mask(words, _mm512_set1_epi16(0x78));
    const __m512i positive = _mm512_mask_permutexvar_epi16(size, is_tiny, words, tiny);
    const __m512i sign = _mm512_set1_epi16(static_cast<int16_t>(0x8000));
    return _mm512_ternarylogic_epi32(sign, _mm512_slli_epi16(words, 8), positive, 0xca);  // sign ? words : positive
  }
  static __m512i load(const uint8_t* row, int64_t d) {
    return of_bytes(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + d)));
  }
  static __m512i load_n(const uint8_t* row, int64_t d, int64_t n) {
    return of_bytes(_mm256_maskz_loadu_epi8((1u << n) - 1, row + d));
  }
};

// Transposes 16 rows of 16 lanes: swaps words of adjacent rows, then pairs of words of every second row, then quarters.
inline void transpose_16(__m512i* row) {
  __m512i t[16];
#pragma GCC unroll 16
  for (int r = 0; r < 16; r += 2) {
    t[r] = _mm512_unpacklo_epi32(row[r], row[r + 1]);
    t[r + 1] = _mm512_unpackhi_epi32(row[r], row[r + 1]);
  }
#pragma GCC unroll 16
  for (int r = 0; r < 16; r += 4) {
    row[r] = _mm512_unpacklo_epi64(t[r], t[r + 2]);
    row[r + 1] = _mm512_unpackhi_epi64(t[r], t[r + 2]);
    row[r + 2] = _mm512_unpacklo_epi64(t[r + 1], t[r + 3]);
    row[r + 3] = _mm512_unpackhi_epi64(t[r + 1], t[r + 3]);
  }
#pragma GCC unroll 16
  for (int c = 0; c < 4; ++c) {  // quarter l of row[4 g + c]: column 4 l + c of the rows 4 g to 4 g + 3
    const __m512i low0 = _mm512_shuffle_i32x4(row[c], row[4 + c], 0x44);
    const __m512i low1 = _mm512_shuffle_i32x4(row[8 + c], row[12 + c], 0x44);
    const __m512i high0 = _mm512_shuffle_i32x4(row[c], row[4 + c], 0xee);
    const __m512i high1 = _mm512_shuffle_i32x4(row[8 + c], row[12 + c], 0xee);
    row[c] = _mm512_shuffle_i32x4(low0, low1, 0x88);
    row[4 + c] = _mm512_shuffle_i32x4(low0, low1, 0xdd);
    row[8 + c] = _mm512_shuffle_i32x4(high0, high1, 0x88);
    row[12 + c] = _mm512_shuffle_i32x4(high0, high1, 0xdd);
  }
}

// Transposes 16 keys into their half of a chunk. Prefetches kAsk lines four times for each 32 dims.
template <typename Kv, int kAsk>
void transpose_keys(const uint8_t* const* keys, int64_t head_dim, int64_t padded, uint8_t* chunk, Ahead& ahead) {
  for (int64_t d = 0; d < padded; d += kDimGroup, chunk += kDimGroup / 2 * kPairBytes) {
    const bool whole = d + kDimGroup <= head_dim;
    __m512i row[16];
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) {
      if (j % 4 == 0) ahead.ask<kAsk>();
      row[j] = whole ? Kv::load(keys[j], d) : Kv::load_n(keys[j], d, head_dim - d);
    }
    transpose_16(row);
#pragma GCC unroll 16
    for (int c = 0; c < 16; ++c) _mm512_store_si512(chunk + c * kPairBytes, row[c]);
  }
}

inline void interleave_keys(__m512i even, __m512i odd, __m512i& low, __m512i& high) {
  low = _mm512_unpacklo_epi16(even, odd);
  high = _mm512_unpackhi_epi16(even, odd);
}

// Writes the values of the pairs [begin, end) of keys to their groups. If kCheck, returns false if a value is not
// finite.
template <typename Kv, bool kCheck = true>
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
        if (kCheck) wild |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(row[k], exponent), exponent);
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

// Sources of values for the value kernel: tiles, or, if few query rows use the values, the stored rows.
struct TileValues {
  static constexpr int kLines = 0;  // lines to prefetch
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
