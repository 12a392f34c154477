// Packs whole quantized panels with AVX-512: 16 rows at a time.
#include "kernels/quant_packing.h"

#if defined(__x86_64__)
#include <cstring>
#include <utility>

#include "kernels/vector/matmul_pack_quant.h"
#include "kernels/x86/bytes64_avx512.h"

namespace millrace {
namespace {

template <int kSource>
void pack(const uint8_t* stored, const BlockScales* scales, int64_t rows, int64_t cols, int64_t row_begin,
          int64_t row_end, uint8_t* packed) {
  const int64_t whole = row_begin + ((rows < row_end ? rows : row_end) - row_begin) / kPanelRows * kPanelRows;
  panels_packer<Bytes64>(kSource)(kSource, stored, rows, cols, row_begin, whole, packed, scales);
  if (whole < row_end) pack_quant_panels(kSource, stored, rows, cols, whole, row_end, packed, scales);
}

template <int kSource>
void set_pack(KernelTable& table) {
  const MatmulKernel* kernel = table.find_matmul(quant_format_at(kSource));
  if (!kernel || std::strcmp(kernel->layout, "cells32") != 0 || !panels_packer<Bytes64>(kSource)) return;
  MatmulKernel packs = *kernel;
  packs.pack = pack<kSource>;
  set_matmul(table, packs);
}

}  // namespace

void add_quant_packing_avx512(KernelTable& table) {
  [&table]<int... i>(std::integer_sequence<int, i...>) { (set_pack<i>(table), ...); }
  (std::make_integer_sequence<int, kQuantSourceCount + kCarriedCount>{});
}

}  // namespace millrace
#endif
