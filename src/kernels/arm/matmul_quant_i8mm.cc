// Quantized matmul for Arm with products of byte matrices (FEAT_I8MM): smmla multiplies two rows with two tokens, eight
// columns at a time.
//
//   rows 0, 1 by 8 columns       tokens 0, 1 by 8 columns      -> | r0 t0 | r0 t1 | r1 t0 | r1 t1 |
//   rows 2, 3 by 8 columns                                     -> | r2 t0 | r2 t1 | r3 t0 | r3 t1 |
//
// An odd token and a single one use dot products; sums of integers are exact, so all have the same bits.
#include "kernels/arm/matmul_vector_dotprod.h"
#include "kernels/families.h"
#include "kernels/vector/matmul_codewords.h"

namespace millrace {
namespace {

struct VectorI8mm : VectorDotprod {
  static constexpr bool kFewInPlace = false;
  static constexpr bool kPairsColumns = true;

  // sum[t][r] += levels W[kFirst .. kFirst + kCount) of part r times token t.
  template <typename Kind, int kFirst, int kCount, typename Group, int R, int T>
  [[gnu::always_inline]] static void dot(const Group& group, const uint8_t* const (&row)[T], I (&sum)[T][R]) {
    if constexpr (!Group::kPaired) {
      VectorDotprod::dot<Kind, kFirst, kCount>(group, row, sum);
    } else {
      unroll<T / 2>([&](auto pair) __attribute__((always_inline)) {
        two_tokens<kFirst, kCount>(group, row[2 * pair], row[2 * pair + 1], sum[2 * pair], sum[2 * pair + 1]);
      });
      if constexpr (T % 2 != 0) one_token<kFirst, kCount>(group, row[T - 1], sum[T - 1]);
    }
  }

 private:
  template <int kFirst, int kCount, typename Group, int R>
  [[gnu::always_inline]] static void two_tokens(const Group& group, const uint8_t* x, const uint8_t* y, I (&sum_x)[R],
                                                I (&sum_y)[R]) {
    I product[R][2];
    unroll<R>([&](auto r) __attribute__((always_inline)) { product[r][0] = product[r][1] = zero(); });
    unroll<kCount / 2>([&](auto i) __attribute__((always_inline)) {
      constexpr int j = kFirst + 2 * i;
      const int8x16_t both = vreinterpretq_s8_u8(vcombine_u8(vld1_u8(x + 4 * j), vld1_u8(y + 4 * j)));
      unroll<R>([&](auto r) __attribute__((always_inline)) {
        unroll<2>([&](auto half) __attribute__((always_inline)) {
          const int8x16_t w = vreinterpretq_s8_s32(group.template level<j>(half, r));
          product[r][half] = vmmlaq_s32(product[r][half], w, both);
        });
      });
    });
    unroll<R>([&](auto r) __attribute__((always_inline)) {
      sum_x[r] = vaddq_s32(sum_x[r], vuzp1q_s32(product[r][0], product[r][1]));
      sum_y[r] = vaddq_s32(sum_y[r], vuzp2q_s32(product[r][0], product[r][1]));
    });
  }

  template <int kFirst, int kCount, typename Group, int R>
  [[gnu::always_inline]] static void one_token(const Group& group, const uint8_t* x, I (&sum)[R]) {
    I product[R][2];  // of columns 0 to 3 and 4 to 7 of rows 0, 1 and 2, 3
    unroll<R>([&](auto r) __attribute__((always_inline)) { product[r][0] = product[r][1] = zero(); });
    unroll<kCount / 2>([&](auto i) __attribute__((always_inline)) {
      constexpr int j = kFirst + 2 * i;
      const uint8x8_t eight = vld1_u8(x + 4 * j);
      const int8x16_t twice = vreinterpretq_s8_u8(vcombine_u8(eight, eight));
      unroll<R>([&](auto r) __attribute__((always_inline)) {
        unroll<2>([&](auto half) __attribute__((always_inline)) {
          const int8x16_t w = vreinterpretq_s8_s32(group.template level<j>(half, r));
          product[r][half] = vdotq_s32(product[r][half], w, twice);
        });
      });
    });
    unroll<R>([&](auto r) __attribute__((always_inline)) {
      sum[r] = vaddq_s32(sum[r], vpaddq_s32(product[r][0], product[r][1]));
    });
  }
};

}  // namespace

void add_matmul_quant_i8mm(KernelTable& table) {
  add_quant_kernels<VectorI8mm>(table);
  set_table16(table, run_table16<VectorI8mm>);
  set_codewords(table, run_codewords<VectorI8mm>);
}

}  // namespace millrace
