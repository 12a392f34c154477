#include "models/blocks/part_scratch.h"

#include <algorithm>

namespace millrace {
namespace {

int64_t inner_bytes(const PartSizes& sizes) {
  return std::max(part_rows_bytes(sizes.rank), static_cast<int64_t>(kMaxPairs) * part_rows_bytes(sizes.factored_rank));
}

}  // namespace

int64_t widest_rounded_row(int64_t cols) {
  int64_t bytes = 0;
  for (Activation kind : kActivations) bytes = std::max(bytes, activation_row_bytes(kind, cols));
  return bytes;
}

int64_t part_scratch_bytes(const PartSizes& sizes) {
  if (sizes.inputs == 0 && sizes.rank == 0 && sizes.sparse_cols == 0) return 0;
  const int64_t row = std::max(widest_rounded_row(std::max(sizes.cols, sizes.rank)),
                               static_cast<int64_t>(kMaxPairs) * align64(widest_rounded_row(sizes.factored_rank)));
  return 2 * part_rows_bytes(sizes.inputs) + part_rows_bytes(sizes.sparse_cols) + inner_bytes(sizes) +
         part_rows_bytes(sizes.rows) + std::max(kPartRows * row, kChangedRows * widest_rounded_row(sizes.inputs));
}

PartScratch divide_part_scratch(const PartSizes& sizes, uint8_t* buffer) {
  PartScratch out;
  const auto take = [&](int64_t bytes) {
    auto* part = reinterpret_cast<float*>(buffer);
    buffer += bytes;
    return part;
  };
  out.changed = take(part_rows_bytes(sizes.inputs));
  out.unordered = take(part_rows_bytes(sizes.inputs));
  out.turned = take(part_rows_bytes(sizes.sparse_cols));
  out.inner = take(inner_bytes(sizes));
  out.product = take(part_rows_bytes(sizes.rows));
  out.rounded = buffer;
  return out;
}

}  // namespace millrace
