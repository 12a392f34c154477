// Computes sums of values of rows of levels with 8-bit products (attention_byte_rows.h). Include after
// attention_byte_row_keys.h.
#pragma once

#include <cstdint>

namespace millrace {
namespace {

constexpr int64_t kStripBytes = kRowStrip * kRowBlock;  // bytes of one block's levels in a strip
constexpr int64_t kPartsOfStrip = kRowStrip / 16;

// The keys [begin, end) of a strip that are multiplied, as indices in the partition.
struct StripKeys {
  int64_t strip, begin, end;  // multiples of 32
};

inline StripKeys keys_of_strip(int64_t strip, KeyRange chunks) {
  return {strip, chunks.begin > strip ? chunks.begin : strip,
          chunks.end < strip + kRowStrip ? chunks.end : strip + kRowStrip};
}

template <typename Row>
void load_value_scales(const uint8_t* const* rows, int64_t blocks, int64_t begin, int64_t end, ByteRowScratch& b) {
  for (int64_t key = begin; key < end; key += 16) {
    load_row_scales<Row>(rows, key, blocks, 0, b.value_scale);
    if constexpr (Row::kMinimum) load_row_scales<Row>(rows, key, blocks, 2, b.value_minimum);
  }
}

// Rounds a row's weights times scales to planes, for each block. Dword 4 i + j has token 16 j + 4 i of the strip and
// the next three. weight_rest: term that is added to the block's sums.
template <typename Row>
void round_weights_to_bytes(const uint8_t* weight, StripKeys of, int64_t blocks, int64_t r, ByteRowScratch& b) {
  __m512 p[kPartsOfStrip];
  __mmask16 counts[kPartsOfStrip];  // tokens whose weight is not 0; scales of other tokens have no effect
  for (int64_t j = 0; j < kPartsOfStrip; ++j) {
    const int64_t key = of.strip + 16 * j;
    const bool seen = key >= of.begin && key < of.end;
    const __m256i words =
        seen ? _mm256_load_si256(reinterpret_cast<const __m256i*>(weight + key * 2)) : _mm256_setzero_si256();
    const __m512i wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16);
    p[j] = _mm512_castsi512_ps(wide);
    counts[j] = _mm512_test_epi32_mask(wide, wide);
  }
  for (int64_t block = 0; block < blocks; ++block) {
    __m512 scaled[kPartsOfStrip], rest = _mm512_setzero_ps();
    __m512i most = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int64_t j = 0; j < kPartsOfStrip; ++j) {
      const int64_t key = of.strip + 16 * j;
      scaled[j] = _mm512_maskz_mul_ps(counts[j], p[j], _mm512_load_ps(b.value_scale[block] + key));
      most = larger_size(most, scaled[j]);
      if constexpr (Row::kMinimum)
        rest = _mm512_mask3_fmadd_ps(p[j], _mm512_load_ps(b.value_minimum[block] + key), rest, counts[j]);
    }
    const float largest = largest_size(most), unit = unit_of(largest);
    const __m512 inverse = _mm512_set1_ps(inverse_of(largest));
    __m512i whole[kPartsOfStrip];
#pragma GCC unroll 4
    for (int64_t j = 0; j < kPartsOfStrip; ++j) whole[j] = to_whole(scaled[j], inverse);
    b.weight_unit[r][block] = unit;
    if constexpr (Row::kMinimum) {
      b.weight_rest[r][block] = _mm512_reduce_add_ps(rest);
    } else {
      const __m512i all = _mm512_add_epi32(_mm512_add_epi32(whole[0], whole[1]), _mm512_add_epi32(whole[2], whole[3]));
      b.weight_rest[r][block] = static_cast<float>(_mm512_reduce_add_epi32(all) * -Row::kCentre) * unit;
    }
    const __m512i words[2] = {_mm512_packs_epi32(whole[0], whole[1]), _mm512_packs_epi32(whole[2], whole[3])};
    const auto low = [](__m512i x) { return _mm512_and_si512(x, _mm512_set1_epi16(255)); };
    const auto high = [](__m512i x) { return _mm512_srai_epi16(_mm512_add_epi16(x, _mm512_set1_epi16(128)), 8); };
    _mm512_store_si512(b.weight[r][block], _mm512_packus_epi16(low(words[0]), low(words[1])));
    _mm512_store_si512(b.weight[r][block] + kRowStrip, _mm512_packs_epi16(high(words[0]), high(words[1])));
  }
}

// Loads levels of one block for the values of four tokens.
template <typename Row>
struct StoredRowValues {
  const uint8_t* const* rows;  // rows of the strip
  int64_t block;
  LevelHalvesOfFour load(int64_t token) const {
    const uint8_t* const four[4] = {rows[token], rows[token + 1], rows[token + 2], rows[token + 3]};
    return Row::template load<true>(four, block);
  }
};

struct DecodedRowValues {
  const uint8_t* levels;  // levels of the block and strip
  LevelHalvesOfFour load(int64_t token) const {
    const uint8_t* const at = levels + token * kRowBlock;
    return {_mm512_load_si512(at), _mm512_load_si512(at + 64)};
  }
};

template <typename Row>
void decode_row_values(const uint8_t* const* rows, StripKeys of, int64_t block, uint8_t* out) {
  const StoredRowValues<Row> stored{rows + of.strip, block};
  for (int64_t token = of.begin - of.strip; token < of.end - of.strip; token += 4) {
    const LevelHalvesOfFour levels = stored.load(token);
    _mm512_store_si512(out + token * kRowBlock, levels.first);
    _mm512_store_si512(out + token * kRowBlock + 64, levels.last);
  }
}

// Adds one block of a strip's values to the acc of kRows rows, from r on.
template <int kRows, int kAsk, typename Values>
void add_row_values(const Values& values, StripKeys of, int64_t block, int64_t r, int64_t dims, float* acc,
                    Ahead& ahead, const ByteRowScratch& b) {
  __m512i sum[kRows][2][2];  // [half][plane]
#pragma GCC unroll 6
  for (int k = 0; k < kRows; ++k) sum[k][0][0] = sum[k][0][1] = sum[k][1][0] = sum[k][1][1] = _mm512_setzero_si512();
  for (int64_t part = (of.begin - of.strip) / 16; part < (of.end - of.strip) / 16; ++part) {
    if constexpr (kAsk > 0) ahead.ask<kAsk>();
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) {
      const LevelHalvesOfFour levels = values.load(part * 16 + i * 4);
#pragma GCC unroll 6
      for (int k = 0; k < kRows; ++k) {
        const uint8_t* planes = b.weight[r + k][block] + (i * 4 + part) * 4;
        const __m512i low = broadcast_word(planes), high = broadcast_word(planes + kRowStrip);
        sum[k][0][0] = multiply_bytes(sum[k][0][0], levels.first, low);
        sum[k][0][1] = multiply_bytes(sum[k][0][1], levels.first, high);
        sum[k][1][0] = multiply_bytes(sum[k][1][0], levels.last, low);
        sum[k][1][1] = multiply_bytes(sum[k][1][1], levels.last, high);
      }
    }
  }
#pragma GCC unroll 6
  for (int k = 0; k < kRows; ++k) {
    const __m512 unit = _mm512_set1_ps(b.weight_unit[r + k][block]), rest = _mm512_set1_ps(b.weight_rest[r + k][block]);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const int64_t d = block * kRowBlock + half * 16, left = dims - d;
      if (left <= 0) break;
      const auto mask = static_cast<__mmask16>(left >= 16 ? 0xffffu : (1u << left) - 1);
      const __m512i whole = _mm512_add_epi32(_mm512_slli_epi32(sum[k][half][1], 8), sum[k][half][0]);
      const __m512 value = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), unit, rest);
      float* const out = acc + (r + k) * dims + d;
      _mm512_mask_storeu_ps(out, mask, _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), value));
    }
  }
}

// Computes the rows' sums of the values in `chunks`. `decoded`: levels of the partition's values, [strip][block], or
// null.
template <typename Row>
[[gnu::noinline]] void add_byte_rows(const AttentionArgs& a, int64_t row, int64_t rows, KeyRange chunks,
                                     const uint8_t* decoded, Bf16Scratch& s, ByteRowScratch& b) {
  constexpr int kLines = (16 * Row::kBytes + 63) / 64;
  const int64_t dims = value_dim_of(a), blocks = row_blocks(dims);
  float* const acc = a.acc + row * dims;
  std::memset(acc, 0, static_cast<size_t>(rows * dims) * sizeof(float));
  for (int64_t strip = chunks.begin / kRowStrip * kRowStrip; strip < chunks.end; strip += kRowStrip) {
    const StripKeys of = keys_of_strip(strip, chunks);
    if (!decoded) load_value_scales<Row>(s.row, blocks, of.begin, of.end, b);
    for (int64_t r = 0; r < rows; ++r) round_weights_to_bytes<Row>(s.weight + r * kWeightStride, of, blocks, r, b);
    for (int64_t block = 0; block < blocks; ++block) {
      if (!decoded && rows == 1) {
        add_row_values<1, kLines>(StoredRowValues<Row>{s.row + strip, block}, of, block, 0, dims, acc, s.ahead, b);
        continue;
      }
      const uint8_t* levels = s.values;
      if (decoded) {
        levels = decoded + (strip / kRowStrip * blocks + block) * kStripBytes;
      } else {
        s.ahead.ask_lines(kLines * kPartsOfStrip);
        decode_row_values<Row>(s.row, of, block, s.values);
      }
      in_parts<6>(rows, [&]<int n>(int64_t r) {
        add_row_values<n, 0>(DecodedRowValues{levels}, of, block, r, dims, acc, s.ahead, b);
      });
    }
  }
}

}  // namespace
}  // namespace millrace
