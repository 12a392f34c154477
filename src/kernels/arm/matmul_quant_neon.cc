// Quantized matmul for NEON: 8 rows and up to 4 tokens together. Products of bytes are exact: pairs of them are summed
// in 16 bits, after as many products as the largest level allows, and widened then.
#include "kernels/arm/matmul_vector_neon.h"
#include "kernels/families.h"
#include "kernels/vector/matmul_codewords.h"

namespace millrace {
namespace {

struct VectorNeon : NeonOperations {
  static constexpr int kParts = 2;  // vectors of rows processed together
  template <typename Kind>
  static constexpr int kTileTokens = 4;

  // Number of products, each in its own 16 bits, after which the sum of two such sums still fits.
  template <typename Kind>
  static constexpr int safe_sums() {
    if (Kind::kSigned) return 1;  // 2 * 128 * 127
    const int sums = 32767 / (2 * 127 * Kind::kLargest);
    return sums >= 8 ? 8 : sums >= 4 ? 4 : sums >= 2 ? 2 : 1;
  }

  // sum[t][r] += levels W[kFirst .. kFirst + kCount) of part r times token t.
  template <typename Kind, int kFirst, int kCount, typename Group, int R, int T>
  [[gnu::always_inline]] static void dot(const Group& group, const uint8_t* const (&row)[T], I (&sum)[T][R]) {
    constexpr int kSums = safe_sums<Kind>() < kCount ? safe_sums<Kind>() : kCount;
    unroll<kCount / kSums>([&](auto run) __attribute__((always_inline)) {
      int16x8_t low[T][R], high[T][R];  // of rows 0 and 1, 2 and 3
      unroll<kSums>([&](auto i) __attribute__((always_inline)) {
        constexpr int j = kFirst + run * kSums + i;
        int8x16_t w[R];
        unroll<R>([&](auto r) __attribute__((always_inline)) {
          w[r] = vreinterpretq_s8_s32(group.template level<j - i>(i, r));
        });
        unroll<T>([&](auto t) __attribute__((always_inline)) {
          const int8x16_t quad = vreinterpretq_s8_s32(broadcast32(row[t] + 4 * j));
          unroll<R>([&](auto r) __attribute__((always_inline)) {
            if constexpr (i == 0) {
              low[t][r] = vmull_s8(vget_low_s8(w[r]), vget_low_s8(quad));
              high[t][r] = vmull_high_s8(w[r], quad);
            } else {
              low[t][r] = vmlal_s8(low[t][r], vget_low_s8(w[r]), vget_low_s8(quad));
              high[t][r] = vmlal_high_s8(high[t][r], w[r], quad);
            }
          });
        });
      });
      unroll<T>([&](auto t) __attribute__((always_inline)) {
        unroll<R>([&](auto r) __attribute__((always_inline)) {
          sum[t][r] = vpadalq_s16(sum[t][r], vpaddq_s16(low[t][r], high[t][r]));
        });
      });
    });
  }
};

}  // namespace

void add_matmul_quant_neon(KernelTable& table) {
  add_quant_kernels<VectorNeon>(table);
  set_table16(table, run_table16<VectorNeon>);
  set_codewords(table, run_codewords<VectorNeon>);
}

}  // namespace millrace
