#include "kernels/column_levels.h"

#include "base/cpu.h"

namespace millrace {
namespace column_levels_portable {

constexpr int64_t kLanes = 4;  // of every processor's baseline
using Floats = float __attribute__((vector_size(16)));
using Ints = int32_t __attribute__((vector_size(16)));

inline Floats lesser(Floats a, Floats b) { return a < b ? a : b; }
inline Floats greater(Floats a, Floats b) { return a > b ? a : b; }
inline Ints plus_if_less(Ints n, Floats a, Floats b) { return n - (a < b); }
inline Ints if_less(Floats a, Floats b, Ints yes, Ints no) { return a < b ? yes : no; }
inline Ints if_equal(Floats a, Floats b, Ints yes, Ints no) { return a == b ? yes : no; }
inline uint32_t bits_above(Ints x, int least) {
  const Ints bits = (x > least) & Ints{1, 2, 4, 8};
  return static_cast<uint32_t>(bits[0] | bits[1] | bits[2] | bits[3]);
}
inline void put_bytes(uint8_t* to, Ints x) {
  const uint32_t word = static_cast<uint32_t>(x[0] | x[1] << 8 | x[2] << 16 | x[3] << 24);
  __builtin_memcpy(to, &word, sizeof(word));
}

inline uint32_t bits_less(Floats a, Floats b) { return bits_above(b > a, -1) ^ 15; }
inline uint32_t bits_equal(Floats a, Floats b) { return bits_above(a == b, -1) ^ 15; }
inline float least_of(Floats x) {
  const float low = x[0] < x[1] ? x[0] : x[1], high = x[2] < x[3] ? x[2] : x[3];
  return low < high ? low : high;
}

#include "kernels/column_bytes.inc"
#include "kernels/column_levels.inc"
#include "kernels/row_levels.inc"

}  // namespace column_levels_portable

const ColumnLevelKernels& portable_column_levels() { return column_levels_portable::kKernels; }

const ColumnLevelKernels& column_level_kernels() {
#if defined(__x86_64__)
  static const ColumnLevelKernels& chosen = []() -> const ColumnLevelKernels& {
    const auto isa = select_isa();
    if (isa.ok() && isa->includes(Isa::avx2.with(Feature::avx512))) return avx512_column_levels();
    if (isa.ok() && isa->includes(Isa::avx2)) return avx2_column_levels();
    return portable_column_levels();
  }();
  return chosen;
#else
  return portable_column_levels();
#endif
}

}  // namespace millrace
