// Row codecs for AVX2. The shared sources are compiled with the vector type included first.
#if defined(__x86_64__)
// clang-format off
#include "kernels/x86/simd_avx2.h"
#include "kernels/vector/row_decode.h"
#include "kernels/vector/row_codec_kernel.h"
// clang-format on

namespace millrace {

void add_row_codec_avx2(KernelTable& table) {
  set_codec_named(table, "f32", encode_f32, decode_f32);
  set_codec_named(table, "f16", encode_f16, decode_exactly<widen_f16>);
  set_codec_named(table, "bf16", encode_bf16, decode_exactly<Simd::load_bf16>);
  set_codec_named(table, "q8_0", encode_q8, decode_q8);
}

}  // namespace millrace
#endif
