// The working memory of the products of weight parts: ForwardContext::parts, divided. Rows are processed kPartRows at a
// time, and rows of changed inputs are multiplied kChangedRows at a time, so its size does not depend on the batch.
#pragma once

#include <cstdint>

#include "kernels/activation.h"
#include "tensor/weight_parts.h"

namespace millrace {

inline constexpr int64_t kPartRows = 64;
inline constexpr int64_t kChangedRows = 256;  // for fewer, a matrix is read too often: 64 cost 8 % of 512 tokens
inline constexpr size_t kMaxPairs = 4;        // products at once

struct PartScratch {
  float* changed = nullptr;    // [kPartRows, inputs]
  float* unordered = nullptr;  // [kPartRows, inputs]
  float* turned = nullptr;     // [sparse_cols, kPartRows]
  float* inner = nullptr;    // [kPartRows, rank], or of each of kMaxPairs factored matrices [kPartRows, factored_rank]
  float* product = nullptr;  // [kPartRows, rows]
  // kChangedRows rows of inputs values, or kPartRows of cols or rank values; of factored matrices as `inner`
  uint8_t* rounded = nullptr;
};

int64_t part_scratch_bytes(const PartSizes& sizes);
PartScratch divide_part_scratch(const PartSizes& sizes, uint8_t* buffer);
// Bytes of kPartRows rows of `floats` floats.
constexpr int64_t part_rows_bytes(int64_t floats) { return align64(kPartRows * floats * 4); }
// Bytes of a row of `cols` inputs, rounded for any product.
int64_t widest_rounded_row(int64_t cols);

}  // namespace millrace
