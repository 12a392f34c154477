// Budgets that fall from layer to layer by equal steps.
#pragma once

#include <cstdint>

namespace millrace {

// The first of `layers` numbers on a line from `first` down to `last` is `first`, and the last is `last`. Number
// `layer`, rounded down. 0 <= last <= first.
inline int64_t on_line(int64_t first, int64_t last, int64_t layer, int64_t layers) {
  return layers < 2 ? first : first - ((first - last) * layer + layers - 2) / (layers - 1);
}

// Variant whose budgets sum to exactly `average` x `layers`: tokens lost by rounding down are added to the first
// layers, one each. The line runs from 2 x average - last to `last`; last <= average.
inline int64_t on_line_of_average(int64_t average, int64_t last, int64_t layer, int64_t layers) {
  if (layers < 2) return average;
  const int64_t first = 2 * average - last;
  int64_t left = average * layers;
  for (int64_t i = 0; i < layers; ++i) left -= on_line(first, last, i, layers);
  return on_line(first, last, layer, layers) + (layer < left);
}

}  // namespace millrace
