// Which instruction multiplies bfloat16. In attention the sums have the same bits (attention_bf16_products.h); BF16
// weights are multiplied by inputs in f32 rather than in bf16.
#pragma once

namespace millrace {

// FMAs rather than vdpbf16ps. By default on Intel's processors, where vdpbf16ps does half as many products a cycle
// as FMAs (Emerald Rapids: 89 and 179 GFLOP/s a core); on AMD's it does twice as many (Zen 5: 513 and 277).
bool bf16_by_fma();

// For tests that compare both. Must not be called while kernels run.
void set_bf16_by_fma(bool by_fma);

}  // namespace millrace
