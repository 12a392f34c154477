// F8 matmul for AVX-512 with VBMI: codes become bf16 by two byte permutations, then f32.
#if defined(__x86_64__)
#include "kernels/families.h"
#include "kernels/vector/matmul_f8.h"
#include "kernels/x86/matmul_lanes_avx512.h"

namespace millrace {
namespace {

// The bf16 of each of the 128 E4M3 magnitudes, as low and high bytes: the look-up tables for vpermi2b. 127 is NaN.
struct E4m3Bytes {
  alignas(64) uint8_t low[128];
  alignas(64) uint8_t high[128];
};
constexpr E4m3Bytes make_e4m3_bytes() {
  E4m3Bytes bytes = {};
  for (int code = 0; code < 128; ++code) {
    int exponent = code >> 3, mantissa = code & 7;
    int bits = (exponent + 120) << 7 | mantissa << 4;
    if (exponent == 0) {  // mantissa * 2^-9
      int top = mantissa >= 4 ? 2 : mantissa >= 2 ? 1 : 0;
      bits = mantissa == 0 ? 0 : (127 - 9 + top) << 7 | (((mantissa << 7) >> top) & 0x7f);
    }
    if (code == 127) bits = 0x7fc0;
    bytes.low[code] = static_cast<uint8_t>(bits);
    bytes.high[code] = static_cast<uint8_t>(bits >> 8);
  }
  return bytes;
}
constexpr E4m3Bytes kE4m3Bytes = make_e4m3_bytes();

// Two columns of 16 rows, or of one token in every lane.
struct Pair {
  __m512 even, odd;
};

struct F8Avx512 : Lanes16 {
  using V = Pair;
  static constexpr int kOnePanels = 4;  // with one token, enough sums in flight to hide the latency of the adds
  static constexpr int kTile = 6;
  static constexpr const char* kLayout = "panels16";
  static void load_quad(const uint8_t* p, V (&out)[2]) {
    __m512i codes = _mm512_loadu_si512(p);
    __m512i low =
        _mm512_permutex2var_epi8(_mm512_load_si512(kE4m3Bytes.low), codes, _mm512_load_si512(kE4m3Bytes.low + 64));
    __m512i high =
        _mm512_permutex2var_epi8(_mm512_load_si512(kE4m3Bytes.high), codes, _mm512_load_si512(kE4m3Bytes.high + 64));
    high = _mm512_ternarylogic_epi32(high, codes, _mm512_set1_epi8(-128), 0xf8);  // high | (codes & sign)
    out[0] = widen(_mm512_unpacklo_epi8(low, high));
    out[1] = widen(_mm512_unpackhi_epi8(low, high));
  }
  static V widen(__m512i pairs) {  // bf16 pairs to f32
    __m512i odd = _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)), _mm512_castsi512_ps(odd)};
  }
  static V broadcast(const uint8_t* p) {
    auto* x = reinterpret_cast<const float*>(p);
    return {_mm512_set1_ps(x[0]), _mm512_set1_ps(x[1])};
  }
  static F multiply_add(V w, V x, F acc) { return _mm512_fmadd_ps(w.odd, x.odd, _mm512_fmadd_ps(w.even, x.even, acc)); }
};

}  // namespace

void add_matmul_f8_avx512vbmi(KernelTable& table) { add_f8_kernel<F8Avx512>(table); }

}  // namespace millrace
#endif
