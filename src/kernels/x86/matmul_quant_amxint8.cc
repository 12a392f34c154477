// Quantized matmul with 8-bit tiles: Q8_0.
#if defined(__x86_64__)
#include "kernels/x86/matmul_quant_tiles_amxbf16.h"

namespace millrace {

void add_matmul_quant_amxint8(KernelTable& table) {
  unroll<kQuantSourceCount>([&](auto i) {
    if constexpr (kQuantShapes[i].exact_scales()) add_quant_tiles<i>(table);
  });
}

}  // namespace millrace
#endif
