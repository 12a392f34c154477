// Quantized matmul with bfloat16 tiles: every format but Q8_0 (8-bit tiles), Q2_K, where VNNI is as fast, and E8P,
// whose shared bits tiles do not read.
#if defined(__x86_64__)
#include "kernels/x86/matmul_quant_tiles_amxbf16.h"

namespace millrace {

void add_matmul_quant_amxbf16(KernelTable& table) {
  unroll<kQuantSourceCount>([&](auto i) {
    constexpr QuantShape kShape = kQuantShapes[i];
    if constexpr (!kShape.exact_scales() && !kShape.shared_bit && !(kShape.sub == SubScales::per16 && kShape.has_min))
      add_quant_tiles<i>(table);
  });
}

}  // namespace millrace
#endif
