// Chooses the instruction that multiplies bfloat16. In attention, both instructions give the same bits
// (attention_bf16_products.h). For BF16 weights, FMAs multiply by inputs in f32 instead of bf16.
#pragma once

namespace millrace {

// Returns true if FMAs are used instead of vdpbf16ps. The default is true on Intel's processors, where vdpbf16ps
// computes half as many products a cycle as FMAs (Emerald Rapids: 89 and 179 GFLOP/s a core). On AMD's processors it
// computes about twice as many (Zen 5: 513 and 277).
bool bf16_by_fma();

// For tests that compare both. Must not be called while kernels run.
void set_bf16_by_fma(bool by_fma);

}  // namespace millrace
