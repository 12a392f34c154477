// Products of rows as files store them, for the few tokens that meet a matrix before it is packed: packing a slice
// takes several times as long as reading it. The sums are those of quant_shape.h, so the bits are those of packed rows.
//
//   stored   row 0  | d | 32 levels | d | 32 levels | ...          16 rows together; of a group of 32 columns:
//            row 1  | d | 32 levels | d | 32 levels | ...            dots of each row, 4 or 8 partial sums in a vector,
//            ...                                                     transposed and added: lane r has row r's dot
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)  // GCC 12's own headers initialize vectors from undefined ones
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <cstring>

#include "kernels/activation.h"
#include "kernels/quant_packing.h"
#include "kernels/quant_shape.h"
#include "kernels/vector/unroll.h"

namespace millrace {
namespace {

constexpr int kRows = 16;  // multiplied together, a lane each
constexpr int kTokensAtOnce = 4;
constexpr int64_t kFewTokens = 8;  // beyond these, packing a slice costs less than it saves

__m512i add_halves(__m512i a, __m512i b) {
  return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}

// Of four vectors of 4 x 4 partial sums: lane 4 i + k is the sum of the four of part[k] in its 16 bytes i.
__m512i add_quarters(const __m512i (&part)[4]) {
  const __m512i a = add_halves(part[0], part[1]), b = add_halves(part[2], part[3]);
  return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

// Q8_0: y = fma(d * scale, dot, y). A vector has 32 bytes of two rows.
struct StoredQ8 {
  static constexpr int64_t kBytes = 34;
  static constexpr int kVectors = 8;
  struct Levels {
    __m512i at[kVectors];  // of rows k and k + 4 for k < 4, and of k + 4 and k + 8 beyond
  };

  [[gnu::always_inline]] static Levels load(const uint8_t* block, int64_t stride) {
    const __m512i raise = _mm512_set1_epi8(-128);
    Levels levels;
    unroll<kVectors>([&](auto k) __attribute__((always_inline)) {
      constexpr int kRow = k < 4 ? k : k + 4;
      const auto* low = reinterpret_cast<const __m256i*>(block + kRow * stride + 2);
      const auto* high = reinterpret_cast<const __m256i*>(block + (kRow + 4) * stride + 2);
      const __m512i pair =
          _mm512_mask_broadcast_i64x4(_mm512_castsi256_si512(_mm256_loadu_si256(low)), 0xf0, _mm256_loadu_si256(high));
      levels.at[k] = _mm512_xor_si512(pair, raise);
    });
    return levels;
  }

  [[gnu::always_inline]] static __m512i dot(const Levels& levels, const uint8_t* record) {
    const __m512i x = _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(record)));
    __m512i part[kVectors];
    unroll<kVectors>([&](auto k) __attribute__((always_inline)) {
      part[k] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), levels.at[k], x);
    });
    const __m512i low = add_quarters({part[0], part[1], part[2], part[3]});
    const __m512i high = add_quarters({part[4], part[5], part[6], part[7]});
    const __m512i sum = _mm512_add_epi32(_mm512_shuffle_i32x4(low, high, 0x88), _mm512_shuffle_i32x4(low, high, 0xdd));
    int32_t start;
    std::memcpy(&start, record + kQ8StartAt, sizeof start);
    return _mm512_add_epi32(sum, _mm512_set1_epi32(start * (128 >> kQ8StartBits)));
  }

  [[gnu::always_inline]] static __m512 add(__m512 y, __m512 d, __m512i dot, const uint8_t* record) {
    float scale;
    std::memcpy(&scale, record + kQ8ScaleAt, sizeof scale);
    return _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(scale)), _mm512_cvtepi32_ps(dot), y);
  }
};

// Q4_0: y = fma(d, dot << shift, y). A vector has the 16 bytes of four rows.
struct StoredQ4 {
  static constexpr int64_t kBytes = 18;
  static constexpr int kVectors = 4;
  struct Levels {
    __m512i at[kVectors];  // of rows k, k + 4, k + 8 and k + 12
  };

  [[gnu::always_inline]] static Levels load(const uint8_t* block, int64_t stride) {
    Levels levels;
    unroll<kVectors>([&](auto k) __attribute__((always_inline)) {
      const uint8_t* at = block + k * stride + 2;
      __m512i rows = _mm512_castsi128_si512(sixteen(at));
      rows = _mm512_mask_broadcast_i32x4(rows, 0x00f0, sixteen(at + 4 * stride));
      rows = _mm512_mask_broadcast_i32x4(rows, 0x0f00, sixteen(at + 8 * stride));
      levels.at[k] = _mm512_mask_broadcast_i32x4(rows, 0xf000, sixteen(at + 12 * stride));
    });
    return levels;
  }

  [[gnu::always_inline]] static __m512i dot(const Levels& levels, const uint8_t* record) {
    const __m512i first = _mm512_broadcast_i32x4(sixteen(record)), last = _mm512_broadcast_i32x4(sixteen(record + 16));
    const __m512i nibbles = _mm512_set1_epi8(15);
    __m512i part[kVectors];
    unroll<kVectors>([&](auto k) __attribute__((always_inline)) {
      const __m512i low = _mm512_and_si512(levels.at[k], nibbles);
      const __m512i high = _mm512_and_si512(_mm512_srli_epi16(levels.at[k], 4), nibbles);
      part[k] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), low, first), high, last);
    });
    int32_t start;
    std::memcpy(&start, record + kQ8StartAt, sizeof start);
    static_assert(1 << kQ8StartBits == 8, "the offset of a level");
    return _mm512_add_epi32(add_quarters(part), _mm512_set1_epi32(start));
  }

  [[gnu::always_inline]] static __m512 add(__m512 y, __m512 d, __m512i dot, const uint8_t* record) {
    int32_t shift;
    std::memcpy(&shift, record + kQ8ShiftAt, sizeof shift);
    return _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(_mm512_sll_epi32(dot, _mm_cvtsi32_si128(shift))), y);
  }

 private:
  [[gnu::always_inline]] static __m128i sixteen(const uint8_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
};

// Prefetches what comes next, a share with each group: into L2 the kRows rows behind those that are multiplied, in the
// order of memory, which is fastest; from there into L1 the next kRows groups of these rows, one row's with each group.
// One core of a Xeon read 15.8 GB/s with both and two tokens of Q8_0, 14.1 without L1, and 16.2 without products.
// Prefetches beyond the matrix do nothing.
template <int64_t kBytes>
struct RowsAhead {
  const uint8_t* rows = nullptr;  // that are multiplied; null: no prefetches
  int64_t stride = 0;
  int64_t groups = 0;

  [[gnu::always_inline]] void prefetch(int64_t group) const {
    if (!rows) return;
    const uint8_t* behind = rows + kRows * stride;
    lines<_MM_HINT_T1>(behind + group * kRows * kBytes);
    const int64_t next = group / kRows * kRows + kRows;  // of another row: those behind the last groups
    lines<_MM_HINT_T0>((next < groups ? rows + next * kBytes : behind) + group % kRows * stride);
  }

 private:
  template <_mm_hint kHint>
  [[gnu::always_inline]] static void lines(const uint8_t* at) {
    unroll<(kRows * kBytes + 63) / 64>([&](auto line) __attribute__((always_inline)) {
      _mm_prefetch(reinterpret_cast<const char*>(at + line * 64), kHint);
    });
  }
};

// kRows rows with T tokens. Returns whether the scales are finite.
template <typename Stored, int T>
bool multiply_rows(const MatmulArgs& a, const uint8_t* rows, int64_t row, int64_t token,
                   const RowsAhead<Stored::kBytes>& ahead) {
  const int64_t groups = a.cols / kActivationGroup, stride = groups * Stored::kBytes;
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i offsets = _mm512_mullo_epi32(lanes, _mm512_set1_epi32(static_cast<int>(stride)));
  const uint8_t* x = a.x + token * a.x_stride;
  __m512 y[T];
  for (__m512& sum : y) sum = _mm512_setzero_ps();
  __mmask16 damaged = 0;
  for (int64_t g = 0; g < groups; ++g) {
    const uint8_t* const block = rows + g * Stored::kBytes;
    const __m256i d16 = _mm512_cvtepi32_epi16(_mm512_i32gather_epi32(offsets, block, 1));
    damaged |= _mm256_cmpge_epu16_mask(_mm256_and_si256(d16, _mm256_set1_epi16(0x7fff)), _mm256_set1_epi16(0x7c00));
    const __m512 d = _mm512_cvtph_ps(d16);
    const auto levels = Stored::load(block, stride);
    ahead.prefetch(g);
    unroll<T>([&](auto t) __attribute__((always_inline)) {
      const uint8_t* record = x + t * a.x_stride + g * kQ8GroupBytes;
      y[t] = Stored::add(y[t], d, Stored::dot(levels, record), record);
    });
  }
  for (int t = 0; t < T; ++t) {
    float unit;
    std::memcpy(&unit, x + t * a.x_stride + q8_unit_at(a.cols), sizeof unit);
    _mm512_storeu_ps(a.y + (token + t) * a.y_stride + row, _mm512_mul_ps(y[t], _mm512_set1_ps(unit)));
  }
  return damaged == 0;
}

template <typename Stored>
bool run_stored(const MatmulArgs& a) {
  const int64_t groups = a.cols / kActivationGroup, stride = groups * Stored::kBytes;
  bool finite = true;
  const uint8_t* rows = a.weights;
  for (int64_t row = a.row_begin; row < a.row_end; row += kRows, rows += kRows * stride) {
    RowsAhead<Stored::kBytes> ahead{rows, stride, groups};
    for (int64_t t = 0; t < a.tokens; t += kTokensAtOnce, ahead = {}) {
      const int64_t left = a.tokens - t;
      switch (left < kTokensAtOnce ? left : kTokensAtOnce) {
        case 1: finite &= multiply_rows<Stored, 1>(a, rows, row, t, ahead); break;
        case 2: finite &= multiply_rows<Stored, 2>(a, rows, row, t, ahead); break;
        case 3: finite &= multiply_rows<Stored, 3>(a, rows, row, t, ahead); break;
        default: finite &= multiply_rows<Stored, kTokensAtOnce>(a, rows, row, t, ahead);
      }
    }
  }
  return finite;
}

template <typename Stored>
void set_stored(KernelTable& table, int source) {
  const MatmulKernel* kernel = table.find_matmul(quant_format_at(source));
  if (!kernel) return;
  MatmulKernel both = *kernel;
  both.run_stored = run_stored<Stored>;
  both.stored_rows = kRows;
  both.stored_tokens = kFewTokens;
  set_matmul(table, both);
}

}  // namespace

void add_stored_products_avx512vnni(KernelTable& table) {
  set_stored<StoredQ8>(table, 0);
  set_stored<StoredQ4>(table, 1);
}

}  // namespace millrace
#endif
