// Computes scores of rows of levels with 8-bit products (attention_byte_rows.h). Include after
// attention_byte_row_planes.h.
#pragma once

#include <cstdint>

namespace millrace {
namespace {

constexpr int64_t kRowStrip = 64;  // number of tokens whose values are multiplied with one unit
constexpr int64_t kRowKeys = 16;   // number of tokens in a vector of scores
constexpr int64_t kHalvesBytes = 128;
// Bytes of a query's planes in a block: low and high plane of the first half, then of the last.
constexpr int64_t kPlanesOfBlock = 4 * 64;

struct ByteRowScratch {
  alignas(64) uint8_t query[kBlockRows * kMaxRowBlocks * kPlanesOfBlock];
  float query_unit[kBlockRows], query_rest[kBlockRows][kMaxRowBlocks];
  alignas(64) float key_scale[kMaxRowBlocks][kAttentionPartition], key_minimum[kMaxRowBlocks][kAttentionPartition];
  alignas(64) float value_scale[kMaxRowBlocks][kAttentionPartition], value_minimum[kMaxRowBlocks][kAttentionPartition];
  alignas(64) uint8_t weight[kBlockRows][kMaxRowBlocks][2 * kRowStrip];  // the low plane, then the high plane
  float weight_unit[kBlockRows][kMaxRowBlocks], weight_rest[kBlockRows][kMaxRowBlocks];
};

inline int64_t row_blocks(int64_t dims) { return (dims + kRowBlock - 1) / kRowBlock; }

// Rounds a query to planes, [block][half][low, high] of 64 bytes: 16 bytes of the query, four times. query_rest: an
// additional factor of a block's scale, or of its minimum.
template <typename Row>
void round_query_to_bytes(const AttentionArgs& a, int64_t row, int64_t r, ByteRowScratch& b) {
  const float* q = a.q + (row + r) / a.group * a.q_stride + (row + r) % a.group * a.head_dim;
  const auto load = [&](int64_t d) {
    const int64_t left = a.head_dim - d;
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>(left >= 16 ? 0xffffu : left > 0 ? (1u << left) - 1 : 0), q + d);
  };
  __m512i most = _mm512_setzero_si512();
  for (int64_t d = 0; d < a.head_dim; d += 16) most = larger_size(most, load(d));
  const float largest = largest_size(most);
  b.query_unit[r] = unit_of(largest);
  const __m512 inverse = _mm512_set1_ps(inverse_of(largest));
  uint8_t* out = b.query + r * kMaxRowBlocks * kPlanesOfBlock;
  for (int64_t block = 0; block < row_blocks(a.head_dim); ++block) {
    __m512i sum = _mm512_setzero_si512();
    for (int64_t half = 0; half < 2; ++half, out += 128) {
      const __m512i whole = to_whole(load(block * kRowBlock + half * 16), inverse);
      const __m128i low = _mm512_cvtepi32_epi8(whole);
      const __m512i above = _mm512_srai_epi32(_mm512_add_epi32(whole, _mm512_set1_epi32(128)), 8);
      _mm512_store_si512(out, _mm512_broadcast_i32x4(low));
      _mm512_store_si512(out + 64, _mm512_broadcast_i32x4(_mm512_cvtepi32_epi8(above)));
      sum = _mm512_add_epi32(sum, whole);
    }
    const auto total = static_cast<float>(_mm512_reduce_add_epi32(sum));
    b.query_rest[r][block] = Row::kMinimum ? total : total * static_cast<float>(-Row::kCentre);
  }
}

// Loads levels of 16 keys. Vector i has keys i, i + 4, i + 8 and i + 12, so that the sums of four vectors are in order.
template <typename Row>
struct StoredKeys {
  const uint8_t* const* rows;
  LevelHalvesOfFour load(int64_t block, int i) const {
    const uint8_t* const token[4] = {rows[i], rows[i + 4], rows[i + 8], rows[i + 12]};
    return Row::template load<false>(token, block);
  }
};

struct DecodedKeys {  // [block][vector]
  const uint8_t* levels;
  LevelHalvesOfFour load(int64_t block, int i) const {
    const uint8_t* const at = levels + (block * 4 + i) * kHalvesBytes;
    return {_mm512_load_si512(at), _mm512_load_si512(at + 64)};
  }
};

template <typename Row>
void decode_row_keys(const uint8_t* const* rows, int64_t blocks, uint8_t* out) {
  const StoredKeys<Row> stored{rows};
  for (int64_t block = 0; block < blocks; ++block) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i, out += kHalvesBytes) {
      const LevelHalvesOfFour levels = stored.load(block, i);
      _mm512_store_si512(out, levels.first);
      _mm512_store_si512(out + 64, levels.last);
    }
  }
}

// Sums each four lanes of four vectors [4 tokens][4 sums]. Returns the sums of 16 tokens in the order of StoredKeys.
inline __m512 add_four_sums(const __m512* v) {
  const __m512 a = _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
  const __m512 b = _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
  return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
}

template <int i>
// Returns the scales of keys i, i + 4, i + 8 and i + 12, four times each.
inline __m512 scale_of_vector(__m512 scales) {
  return _mm512_permute_ps(scales, i * 0x55);
}

// Computes the scores of 16 keys, from `key` on, and kRows queries, from r on. Prefetches kAsk lines for each block.
template <typename Row, int kRows, int kAsk, typename Keys>
void score_row_keys(const Keys& keys, int64_t blocks, int64_t key, int64_t r, float* score, Ahead& ahead,
                    const ByteRowScratch& b) {
  __m512 sum[kRows][4], rest[kRows];
#pragma GCC unroll 4
  for (int k = 0; k < kRows; ++k) rest[k] = sum[k][0] = sum[k][1] = sum[k][2] = sum[k][3] = _mm512_setzero_ps();
  const uint8_t* query = b.query + r * kMaxRowBlocks * kPlanesOfBlock;
  for (int64_t block = 0; block < blocks; ++block, query += kPlanesOfBlock) {
    if constexpr (kAsk > 0) ahead.ask<kAsk>();
    const __m512 scales = _mm512_load_ps(b.key_scale[block] + key);
    const __m512 scale[4] = {scale_of_vector<0>(scales), scale_of_vector<1>(scales), scale_of_vector<2>(scales),
                             scale_of_vector<3>(scales)};
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const LevelHalvesOfFour levels = keys.load(block, i);
#pragma GCC unroll 4
      for (int k = 0; k < kRows; ++k) {
        const uint8_t* planes = query + k * kMaxRowBlocks * kPlanesOfBlock;
        const auto plane = [&](int64_t p) { return _mm512_load_si512(planes + p * 64); };
        __m512i whole = multiply_bytes(_mm512_setzero_si512(), levels.first, plane(1));
        whole = _mm512_slli_epi32(multiply_bytes(whole, levels.last, plane(3)), 8);
        whole = multiply_bytes(multiply_bytes(whole, levels.first, plane(0)), levels.last, plane(2));
        sum[k][i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), scale[i], sum[k][i]);
      }
    }
    const __m512 besides = Row::kMinimum ? _mm512_load_ps(b.key_minimum[block] + key) : scales;
#pragma GCC unroll 4
    for (int k = 0; k < kRows; ++k)
      rest[k] = _mm512_fmadd_ps(besides, _mm512_set1_ps(b.query_rest[r + k][block]), rest[k]);
  }
#pragma GCC unroll 4
  for (int k = 0; k < kRows; ++k) {
    const __m512 all = _mm512_add_ps(add_four_sums(sum[k]), rest[k]);
    _mm512_store_ps(score + (r + k) * kScoreStride + key, _mm512_mul_ps(all, _mm512_set1_ps(b.query_unit[r + k])));
  }
}

template <typename Row>
void load_key_scales(const uint8_t* const* rows, int64_t blocks, int64_t key, ByteRowScratch& b) {
  load_row_scales<Row>(rows, key, blocks, 0, b.key_scale);
  if constexpr (Row::kMinimum) load_row_scales<Row>(rows, key, blocks, 2, b.key_minimum);
}

// Computes the scores of the keys in `chunks`. `decoded`: levels of the partition's keys, or null.
template <typename Row>
[[gnu::noinline]] void score_byte_rows(const AttentionArgs& a, int64_t row, int64_t rows, KeyRange chunks,
                                       const uint8_t* decoded, Bf16Scratch& s, ByteRowScratch& b) {
  constexpr int kLines = (kRowKeys * Row::kBytes + 63) / 64;
  const int64_t blocks = row_blocks(a.head_dim);
  for (int64_t r = 0; r < rows; ++r) round_query_to_bytes<Row>(a, row, r, b);
  for (int64_t key = chunks.begin; key < chunks.end; key += kRowKeys) {
    const uint8_t* levels = s.keys;
    if (decoded) {
      levels = decoded + key * blocks * kRowBlock;
    } else {
      load_key_scales<Row>(s.row, blocks, key, b);
      if (rows == 1) {
        score_row_keys<Row, 1, kLines>(StoredKeys<Row>{s.row + key}, blocks, key, 0, s.score, s.ahead, b);
        continue;
      }
      s.ahead.ask_lines(kLines * blocks);
      decode_row_keys<Row>(s.row + key, blocks, s.keys);
    }
    in_parts<4>(rows, [&]<int n>(int64_t r) {
      score_row_keys<Row, n, 0>(DecodedKeys{levels}, blocks, key, r, s.score, s.ahead, b);
    });
  }
}

}  // namespace
}  // namespace millrace
