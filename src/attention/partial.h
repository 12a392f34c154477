// Partial: the result of attention over some of the keys, for `rows` rows; partials of the same rows can be joined.
#pragma once

#include <cstdint>

namespace millrace {

// One array: max [rows] | sum [rows] | acc [rows, head_dim].
struct Partial {
  float* max;
  float* sum;
  float* acc;
};

inline int64_t partial_floats(int64_t rows, int64_t head_dim) { return rows * (2 + head_dim); }

inline Partial partial_at(float* scratch, int64_t rows) { return {scratch, scratch + rows, scratch + 2 * rows}; }

}  // namespace millrace
