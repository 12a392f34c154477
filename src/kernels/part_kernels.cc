// Which version of the kernels of weights with parts a machine takes.
#include "kernels/part_kernels.h"

namespace millrace {

const PartKernels& part_kernels(Isa isa) {
  static const PartKernels reference = part_kernels_ref();
#if defined(__x86_64__)
  static const PartKernels avx2 = part_kernels_avx2(), avx512 = part_kernels_avx512();
  if (isa.has(Feature::avx512)) return avx512;
  if (isa.has(Feature::avx2)) return avx2;
#elif defined(__aarch64__)
  static const PartKernels neon = part_kernels_neon();
  if (isa.has(Feature::neon)) return neon;
#endif
  return reference;
}

}  // namespace millrace
