// Residuals of rows: what rounding left of a row of keys or values, rounded to the same format and stored as a second
// row. Both rows together have about twice as many bits. The second rows are separate planes (KvPool::planes()), a
// fixed number of bytes behind the first ones, so reading only the first rows takes half of the memory traffic.
//
//   row        the encoding of x
//   residual   the encoding of x - decode(row)
#pragma once

#include <array>
#include <atomic>

#include "kernels/kernel_table.h"

namespace millrace {

inline constexpr int64_t kMaxResidualValues = kMaxMixedHeadDim;  // maximum number of values in a row with a residual

// `residual_offset`: bytes from a row to its residual; 0: it has none.
inline void encode_with_residual(const RowCodec& codec, const float* values, int64_t residual_offset, int64_t n,
                                 uint8_t* row) {
  codec.encode(values, row, n);
  if (residual_offset == 0) return;
  std::array<float, kMaxResidualValues> left;
  codec.decode(row, left.data(), n);
  for (int64_t i = 0; i < n; ++i) left[static_cast<size_t>(i)] = values[i] - left[static_cast<size_t>(i)];
  codec.encode(left.data(), row + residual_offset, n);
}

// Decodes the sum of a row and its residual.
inline void decode_with_residual(const RowCodec& codec, const uint8_t* row, int64_t residual_offset, int64_t n,
                                 float* values) {
  codec.decode(row, values, n);
  if (residual_offset == 0) return;
  std::array<float, kMaxResidualValues> left;
  codec.decode(row + residual_offset, left.data(), n);
  for (int64_t i = 0; i < n; ++i) values[i] += left[static_cast<size_t>(i)];
}

// Counts the rows of attention, one for each head, token and layer, and the flat ones among them, which read residuals
// (attention/flat_rows.h). Any thread may add.
struct ResidualReads {
  std::atomic<int64_t> rows = 0, flat = 0;

  void add(int64_t more, int64_t more_flat) {
    rows.fetch_add(more, std::memory_order_relaxed);
    flat.fetch_add(more_flat, std::memory_order_relaxed);
  }
  double share() const { return rows > 0 ? static_cast<double>(flat) / static_cast<double>(rows) : 0; }
};

}  // namespace millrace
