// Row codecs for AVX2. The shared sources are compiled with the vector type included first.
#if defined(__x86_64__)
// clang-format off
#include "kernels/x86/simd_avx2.h"
#include "kernels/vector/row_decode.h"
#include "kernels/vector/row_codec_kernel.h"
// clang-format on

namespace millrace {

void add_row_codec_avx2(KernelTable& table) { add_row_codecs(table); }

}  // namespace millrace
#endif
