// BF16 matmul for Arm with dot products of bfloat16 pairs (FEAT_BF16): two columns of four rows an instruction.
#include "kernels/arm/matmul_lanes_neon.h"
#include "kernels/families.h"

namespace millrace {
namespace {

struct Bf16Dot : Lanes8 {
  struct V {
    bfloat16x8_t a, b;  // rows 0 to 3, 4 to 7
  };
  static constexpr const char* kFormat = "bf16";
  static constexpr Activation kActivation = Activation::bf16;
  static constexpr int kStep = 2;
  static constexpr int kVectorBytes = 32;
  template <int part>
  static V load(const uint8_t* p) {
    return {vreinterpretq_bf16_u8(vld1q_u8(p)), vreinterpretq_bf16_u8(vld1q_u8(p + 16))};
  }
  template <int part>
  static V broadcast(const uint8_t* p) {
    const bfloat16x8_t x = vreinterpretq_bf16_u32(vld1q_dup_u32(reinterpret_cast<const uint32_t*>(p)));
    return {x, x};
  }
  static F multiply_add(V w, V x, F acc) { return {vbfdotq_f32(acc.a, w.a, x.a), vbfdotq_f32(acc.b, w.b, x.b)}; }
};

}  // namespace

void add_matmul_bf16_armbf16(KernelTable& table) { add_float_kernel<Bf16Dot>(table); }

}  // namespace millrace
