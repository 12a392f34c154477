// The 256-bit quantized matmul with 8-bit dot products of signed levels (vpdpbssd). Formats of 8-bit levels and of
// tables use signed levels, so no offset must be undone with sums of the inputs. `Product::add(sum, w, x)` adds four
// products of signed bytes to each 32-bit sum.
#pragma once

#include "kernels/x86/matmul_vnni_avx2.h"

namespace millrace {
namespace {

template <typename Product>
struct VectorVnniInt8 : VectorVnni256 {
  static constexpr bool kPrefersSigned = true;
  static constexpr bool kByMagnitudes = false;

  template <typename Kind, int kFirst, int kCount, typename Group, int R, int T>
  [[gnu::always_inline]] static void dot(const Group& group, const uint8_t* const (&row)[T], I (&sum)[T][R]) {
    if constexpr (!Kind::kSigned) return VectorVnni256::dot<Kind, kFirst, kCount>(group, row, sum);
    steps<Group::kSpreads, kCount>([&](auto j) __attribute__((always_inline)) {
      I w[R];
      steps<Group::kSpreads, R>([&](auto r)
                                    __attribute__((always_inline)) { w[r] = group.template level<kFirst>(j, r); });
      repeat<T>([&](int t) __attribute__((always_inline)) {
        const I quad = broadcast32(row[t] + 4 * (kFirst + j));
        repeat<R>([&](int r) __attribute__((always_inline)) { sum[t][r] = Product::add(sum[t][r], w[r], quad); });
      });
    });
  }
};

// Adds the kernels of formats with signed levels; all other formats use the products of AVX-VNNI.
template <typename V>
void add_signed_kernels(KernelTable& table) {
  unroll<kQuantSourceCount>([&](auto i) {
    if constexpr (Levels<V, i>::kSigned) add_quant_kernel<V, i>(table);
  });
  set_table16(table, run_table16<V>);
  set_codewords(table, run_codewords<V>);
}

}  // namespace
}  // namespace millrace
