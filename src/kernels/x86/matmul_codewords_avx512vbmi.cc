// Words of eight weights (codebook_products.h) with indices of 8 bits, for few tokens: what a book's 256 words add to
// the dot of any row with eight columns is computed once, and the rows look it up.
//
//   T[k] = word k * x[8 columns] + 2^15        per book and eight columns: 256 sums, as low and high bytes
//   dot  = sum of T[index] over 4 x 8 columns and all books, minus the offsets
//
// A permutation of bytes looks up 64 rows at once. Sums are exact integers, and the rest is as with VNNI, so the bits
// are the same. Sums beyond 16 bits, which take words and inputs that are nearly parallel and as large as int8 allows,
// get a third byte. One chunk of columns at a time, so that its tables stay in L1 while all rows pass.
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)  // GCC 12's own headers initialize vectors from undefined ones
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <cstring>

#include "kernels/activation.h"
#include "kernels/families.h"
#include "kernels/vector/matmul_codewords_pack.h"
#include "kernels/vector/unroll.h"

namespace millrace {
namespace {

using I = __m512i;
using F = __m512;

constexpr int64_t kWords = 256;
constexpr int kMaxBooks = 4;
constexpr int64_t kMaxTokens = 2;     // more are faster in tiles
constexpr int64_t kStartRows = 256;   // whose products take as long as the tables
constexpr int64_t kChunkSteps = 16;   // of eight columns: whole cells
constexpr int64_t kStepsOfGroup = 4;  // that share a scale
constexpr int kOffset = 1 << 15;      // makes sums unsigned
static_assert(kChunkSteps * kCodewordColumns % kCodewordCellColumns == 0);

// Of eight columns and one book.
struct Sums {
  alignas(64) uint8_t low[kWords];
  alignas(64) uint8_t high[kWords];
};

struct Tables {
  // Words by quad of columns and vector of 16 words, raised by 128 for products of unsigned bytes.
  alignas(64) uint8_t words[kMaxBooks][2][kWords * 4];
  Sums sums[kChunkSteps * kMaxBooks];                       // [step][book]
  alignas(64) int8_t top[kChunkSteps * kMaxBooks][kWords];  // valid if beyond
  bool beyond = false;                                      // some sum of the chunk takes more than 16 bits
};

// Word k of 64 is where the packing of sums in add_up(), 16 bytes at a time, leaves its sum at byte k.
void place_words(const CodewordTables& from, Tables& to) {
  const int8_t* word = from.words;
  for (int m = 0; m < from.books; ++m)
    for (int64_t k = 0; k < kWords; ++k, word += kCodewordColumns) {
      const int64_t at = k / 64 * 64 + k / 4 % 4 * 16 + k / 16 % 4 * 4 + k % 4;
      for (int half = 0; half < 2; ++half) {
        uint32_t quad;
        std::memcpy(&quad, word + half * 4, sizeof quad);
        quad ^= 0x80808080;
        std::memcpy(to.words[m][half] + at * 4, &quad, sizeof quad);
      }
    }
}

// The sums of one step and book again, with a third byte.
[[gnu::noinline]] void add_top(const CodewordTables& from, int book, const int8_t* x, Sums& sums, int8_t* top) {
  const int8_t* word = from.words + book * kWords * kCodewordColumns;
  for (int64_t k = 0; k < kWords; ++k, word += kCodewordColumns) {
    int sum = kOffset;
    for (int i = 0; i < kCodewordColumns; ++i) sum += word[i] * x[i];
    sums.low[k] = static_cast<uint8_t>(sum);
    sums.high[k] = static_cast<uint8_t>(sum >> 8);
    top[k] = static_cast<int8_t>(sum >> 16);
  }
}

// T of one step and book; whether all fit in 16 bits.
[[gnu::target("avx512vnni")]] bool add_up(const uint8_t (&words)[2][kWords * 4], const int8_t* x, int start, Sums& to) {
  int quads[2];
  std::memcpy(quads, x, sizeof quads);
  const I first = _mm512_set1_epi32(quads[0]), second = _mm512_set1_epi32(quads[1]);
  const I begin = _mm512_set1_epi32(start), low = _mm512_set1_epi16(255);
  I all = _mm512_setzero_si512();
  for (int64_t at = 0; at < kWords; at += 64) {
    I sum[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int64_t of = at * 4 + i * 64;
      sum[i] = _mm512_dpbusd_epi32(begin, _mm512_load_si512(words[0] + of), first);
      sum[i] = _mm512_dpbusd_epi32(sum[i], _mm512_load_si512(words[1] + of), second);
      all = _mm512_or_si512(all, sum[i]);
    }
    const I a = _mm512_packus_epi32(sum[0], sum[1]), b = _mm512_packus_epi32(sum[2], sum[3]);
    _mm512_store_si512(to.low + at, _mm512_packus_epi16(_mm512_and_si512(a, low), _mm512_and_si512(b, low)));
    _mm512_store_si512(to.high + at, _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8)));
  }
  return _mm512_test_epi32_mask(all, _mm512_set1_epi32(~0xffff)) == 0;
}

// Of steps [0, steps) from record x on.
void prepare(const CodewordTables& from, const uint8_t* x, int64_t steps, Tables& to) {
  to.beyond = false;
  for (int64_t step = 0; step < steps; ++step) {
    const auto* columns = reinterpret_cast<const int8_t*>(x + step / kStepsOfGroup * kQ8GroupBytes) +
                          step % kStepsOfGroup * kCodewordColumns;
    int sum = 0;
    for (int i = 0; i < kCodewordColumns; ++i) sum += columns[i];
    for (int m = 0; m < from.books; ++m) {
      const int64_t at = step * from.books + m;
      if (add_up(to.words[m], columns, kOffset - 128 * sum, to.sums[at])) continue;
      if (!to.beyond) std::memset(to.top, 0, sizeof to.top);
      to.beyond = true;
      add_top(from, m, columns, to.sums[at], to.top[at]);
    }
  }
}

// Bytes of a table for 64 indices, whose bits 6 and 7 are in masks.
[[gnu::always_inline]] inline I look_up(const void* table, I index, __mmask64 bit6, __mmask64 bit7) {
  const auto* at = static_cast<const uint8_t*>(table);
  I a = _mm512_permutexvar_epi8(index, _mm512_load_si512(at));
  a = _mm512_mask_permutexvar_epi8(a, bit6, index, _mm512_load_si512(at + 64));
  I b = _mm512_permutexvar_epi8(index, _mm512_load_si512(at + 128));
  b = _mm512_mask_permutexvar_epi8(b, bit6, index, _mm512_load_si512(at + 192));
  return _mm512_mask_blend_epi8(bit7, a, b);
}

[[gnu::always_inline]] inline I two_halves(const void* low, const void* high) {
  const __m256i first = _mm256_loadu_si256(static_cast<const __m256i*>(low));
  return _mm512_inserti64x4(_mm512_castsi256_si512(first), _mm256_loadu_si256(static_cast<const __m256i*>(high)), 1);
}

// Two panels: byte b of vectors of indices and sums belongs to row b % 4 * 8 + b / 4 of its panel.
struct Pair {
  const uint8_t* panel[2];
  int64_t rows[2];
  float* y[2];
  int64_t ahead;  // bytes to the next two
};

// The sum over the groups of a chunk, whose first indices are at `at` in both panels.
template <bool kBeyond>
[[gnu::always_inline]] inline void add_chunk(const Tables& tables, int books, const Pair& pair, int64_t at,
                                             int64_t groups, const uint8_t* x, F (&acc)[4]) {
  const uint8_t *first = pair.panel[0] + at, *second = pair.panel[1] + at;
  const I low8 = _mm512_set1_epi16(255), low16 = _mm512_set1_epi32(0xffff);
  const I offsets = _mm512_set1_epi32(-static_cast<int>(kStepsOfGroup) * books * kOffset);
  for (int64_t g = 0; g < groups; ++g, x += kQ8GroupBytes) {
    I low[2], high[2], top = _mm512_setzero_si512();  // of even and odd bytes
    low[0] = low[1] = high[0] = high[1] = top;
    const int64_t tables_of_group = kStepsOfGroup * books;
    for (int64_t i = g * tables_of_group; i < (g + 1) * tables_of_group; ++i) {
      const I index = two_halves(first, second);
      _mm_prefetch((i % 2 == 0 ? first : second) + pair.ahead, _MM_HINT_T0);  // two steps read a line of each
      first += kCodewordRows;
      second += kCodewordRows;
      const __mmask64 bit7 = _mm512_movepi8_mask(index), bit6 = _mm512_movepi8_mask(_mm512_add_epi8(index, index));
      const I a = look_up(tables.sums[i].low, index, bit6, bit7), b = look_up(tables.sums[i].high, index, bit6, bit7);
      low[0] = _mm512_add_epi16(low[0], _mm512_and_si512(a, low8));
      low[1] = _mm512_add_epi16(low[1], _mm512_srli_epi16(a, 8));
      high[0] = _mm512_add_epi16(high[0], _mm512_and_si512(b, low8));
      high[1] = _mm512_add_epi16(high[1], _mm512_srli_epi16(b, 8));
      if constexpr (kBeyond) top = _mm512_add_epi8(top, look_up(tables.top[i], index, bit6, bit7));
    }
    const F scale = _mm512_set1_ps(*reinterpret_cast<const float*>(x + kQ8ScaleAt));
    unroll<4>([&](auto q) __attribute__((always_inline)) {  // byte q of each four
      const auto widen = [&](I v) __attribute__((always_inline)) {
        return q < 2 ? _mm512_and_si512(v, low16) : _mm512_srli_epi32(v, 16);
      };
      I dot = _mm512_add_epi32(widen(low[q % 2]), _mm512_slli_epi32(widen(high[q % 2]), 8));
      dot = _mm512_add_epi32(dot, offsets);
      if constexpr (kBeyond) {
        const I sign = _mm512_srai_epi32(_mm512_slli_epi32(top, 24 - 8 * q), 24);
        dot = _mm512_add_epi32(dot, _mm512_slli_epi32(sign, 16));
      }
      const F by =
          _mm512_mul_ps(_mm512_castsi512_ps(two_halves(pair.panel[0] + q * 32, pair.panel[1] + q * 32)), scale);
      acc[q] = _mm512_fmadd_ps(by, _mm512_cvtepi32_ps(dot), acc[q]);
    });
  }
}

__mmask8 lanes(int64_t count) { return static_cast<__mmask8>(count >= 8 ? 0xff : count <= 0 ? 0 : (1u << count) - 1); }

// y of two panels += a chunk; the last one ends the sum.
void add_pair(const Tables& tables, int books, const Pair& pair, int64_t at, int64_t groups, const uint8_t* x,
              bool begins, const float* unit) {
  F acc[4];
  for (int q = 0; q < 4; ++q) {
    acc[q] = _mm512_setzero_ps();
    if (begins) continue;
    const __m256 low = _mm256_maskz_loadu_ps(lanes(pair.rows[0] - 8 * q), pair.y[0] + 8 * q);
    const __m256 high = _mm256_maskz_loadu_ps(lanes(pair.rows[1] - 8 * q), pair.y[1] + 8 * q);
    acc[q] = _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
  }
  if (tables.beyond)
    add_chunk<true>(tables, books, pair, at, groups, x, acc);
  else
    add_chunk<false>(tables, books, pair, at, groups, x, acc);
  for (int q = 0; q < 4; ++q) {
    const F value = unit ? _mm512_mul_ps(acc[q], _mm512_set1_ps(*unit)) : acc[q];
    _mm256_mask_storeu_ps(pair.y[0] + 8 * q, lanes(pair.rows[0] - 8 * q), _mm512_castps512_ps256(value));
    _mm256_mask_storeu_ps(pair.y[1] + 8 * q, lanes(pair.rows[1] - 8 * q), _mm512_extractf32x8_ps(value, 1));
  }
}

void multiply_token(const MatmulArgs& a, const CodewordTables& from, Tables& tables, int64_t token) {
  const int64_t panel_bytes = codeword_panel_bytes(from.bits, from.books, a.cols);
  const int64_t step_bytes = codeword_step_bytes(from.bits, from.books);
  const int64_t all = padded_values(a.cols) / kCodewordColumns;
  const uint8_t* x = a.x + token * a.x_stride;
  const auto* unit = reinterpret_cast<const float*>(x + q8_unit_at(a.cols));
  for (int64_t step = 0; step < all; step += kChunkSteps) {
    const int64_t steps = all - step < kChunkSteps ? all - step : kChunkSteps;
    const uint8_t* columns = x + step / kStepsOfGroup * kQ8GroupBytes;
    prepare(from, columns, steps, tables);
    const uint8_t* panel = a.weights + a.row_begin / kCodewordRows * panel_bytes;
    for (int64_t row = a.row_begin; row < a.row_end; row += 2 * kCodewordRows, panel += 2 * panel_bytes) {
      float* y = a.y + token * a.y_stride + row;
      const bool two = row + kCodewordRows < a.row_end;
      const Pair pair = {.panel = {panel, two ? panel + panel_bytes : panel},
                         .rows = {a.row_end - row, two ? a.row_end - row - kCodewordRows : 0},
                         .y = {y, two ? y + kCodewordRows : y},
                         .ahead = 2 * panel_bytes};
      add_pair(tables, from.books, pair, kCodewordCellsAt + step * step_bytes, steps / kStepsOfGroup, columns,
               step == 0, step + steps == all ? unit : nullptr);
    }
  }
}

void run_sums(const MatmulArgs& a) {
  const CodewordTables from = codeword_tables(*a.codebook);
  if (a.tokens > kMaxTokens || from.bits != 8 || from.books > kMaxBooks) return codewords_run_avx512vnni()(a);
  Tables tables;
  place_words(from, tables);
  for (int64_t token = 0; token < a.tokens; ++token) multiply_token(a, from, tables, token);
}

}  // namespace

void add_matmul_codewords_avx512vbmi(KernelTable& table) {
  if (!table.isa.has(Feature::avx512_vnni)) return;
  for (MatmulKernel& kernel : table.codebooks)
    if (kernel.format == &codeword_indices()) {
      kernel.run = run_sums;
      kernel.start_rows = kStartRows;
    }
}

QuantRun codewords_run_avx512vbmi() { return run_sums; }

}  // namespace millrace
#endif
