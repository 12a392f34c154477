// What rounding left of a row of keys or values, rounded to the same format in a row of its own: both together have
// about twice as many bits. The second rows are planes of their own (KvPool::planes()), a fixed number of bytes behind
// the first ones, so that reading the first ones alone takes half of the memory's time.
//
//   row     what the format stores of x
//   rest    what it stores of x - decode(row)
#pragma once

#include <array>
#include <atomic>

#include "kernels/kernel_table.h"

namespace millrace {

inline constexpr int64_t kMostRestValues = kMaxMixedHeadDim;  // of a row with a rest

// `rest`: bytes from a row to its rest; 0: it has none.
inline void encode_with_rest(const RowCodec& codec, const float* values, int64_t rest, int64_t n, uint8_t* row) {
  codec.encode(values, row, n);
  if (rest == 0) return;
  std::array<float, kMostRestValues> left;
  codec.decode(row, left.data(), n);
  for (int64_t i = 0; i < n; ++i) left[static_cast<size_t>(i)] = values[i] - left[static_cast<size_t>(i)];
  codec.encode(left.data(), row + rest, n);
}

// Row and rest.
inline void decode_with_rest(const RowCodec& codec, const uint8_t* row, int64_t rest, int64_t n, float* values) {
  codec.decode(row, values, n);
  if (rest == 0) return;
  std::array<float, kMostRestValues> left;
  codec.decode(row + rest, left.data(), n);
  for (int64_t i = 0; i < n; ++i) values[i] += left[static_cast<size_t>(i)];
}

// Rows of attention, of each head, token and layer, and the flat ones among them, which read rests
// (attention/flat_rows.h). Any thread may add.
struct RestReads {
  std::atomic<int64_t> rows = 0, flat = 0;

  void add(int64_t more, int64_t more_flat) {
    rows.fetch_add(more, std::memory_order_relaxed);
    flat.fetch_add(more_flat, std::memory_order_relaxed);
  }
  double share() const { return rows > 0 ? static_cast<double>(flat) / static_cast<double>(rows) : 0; }
};

}  // namespace millrace
