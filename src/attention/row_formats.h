// Sets the arguments by which a kernel reads the rows of one layer: the sizes of rows, the offset of their residuals,
// and the decoders that the kernel for all formats needs.
#pragma once

#include "kernels/kernel_table.h"
#include "kv/pool.h"

namespace millrace {

inline const AttentionKernel& attention_kernel(const KernelTable& kernels, const KvLayout& layout) {
  return *kernels.find_attention(layout.format, layout.values());
}

// `residuals`: true: rows are read with their residuals (kv/row_residuals.h), if the pool stores residuals.
inline void set_row_formats(const KernelTable& kernels, const KvPool& kv, int64_t layer, bool residuals,
                            AttentionArgs& args) {
  args.row_bytes = kv.row_bytes(layer);
  args.value_row_bytes = kv.value_row_bytes(layer);
  args.decode_key = kernels.find_codec(kv.layout().format)->decode;
  args.decode_value = kernels.find_codec(kv.layout().values())->decode;
  args.residual_offset = residuals ? kv.residual_bytes(layer) : 0;
}

}  // namespace millrace
