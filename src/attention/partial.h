// Partial: the result of attention over some of the keys, for `rows` rows; partials of the same rows can be joined.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/kernel_table.h"

namespace millrace {

// One array: max [rows] | sum [rows] | top [rows] | acc [rows, head_dim], as AttentionArgs has them.
struct Partial {
  float* max;
  float* sum;
  float* top;  // maximum score of each row; set only if flat rows are searched for (attention/flat_rows.h)
  float* acc;

  // Returns the partials of the rows from `row` on.
  Partial from(int64_t row, int64_t head_dim) const { return {max + row, sum + row, top + row, acc + row * head_dim}; }
};

inline int64_t partial_floats(int64_t rows, int64_t head_dim) { return rows * (3 + head_dim); }

inline Partial partial_at(float* scratch, int64_t rows) {
  return {scratch, scratch + rows, scratch + 2 * rows, scratch + 3 * rows};
}

// Makes the kernel write its result to `partial`.
inline void set_partial(const Partial& partial, AttentionArgs& args) {
  args.max = partial.max;
  args.sum = partial.sum;
  args.acc = partial.acc;
  args.top = args.unify ? nullptr : partial.top;
}

// Adds a partial to the total of the previous ones.
inline void join_partial(const KernelTable& kernels, int64_t rows, int64_t head_dim, const Partial& partial,
                         const Partial& total) {
  kernels.attention_join(rows, head_dim, partial.max, partial.sum, partial.acc, total.max, total.sum, total.acc);
  for (int64_t row = 0; row < rows; ++row) total.top[row] = std::max(total.top[row], partial.top[row]);
}

}  // namespace millrace
