// LevelGrid: the values that each position of one block can have under the block's scales, by level; and the choice of
// these scales. For any format with Format::set_level. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "compress/rounding/scale_search.h"
#include "formats/format.h"

namespace millrace {

class LevelGrid {
 public:
  explicit LevelGrid(const Format& format);

  const Format& format() const { return *format_; }

  // Reads the scales of a block; its levels do not matter.
  void read(const uint8_t* block);
  // Reads one position: only its values are valid afterwards.
  void read(const uint8_t* block, int value);
  // Encodes `values` by `search` if there is one. Otherwise tries plain rounding, and plain rounding of the values
  // clamped to 1 - k / 32 of their range for k up to `clips`. `block` receives the encoding with the smallest error,
  // the sum over `weights` * (value - nearest)^2. Then reads it.
  void choose(const float* values, const double* weights, int clips, ScaleSearch* search, uint8_t* block);

  // The nearest level; of two equally near, the lower one.
  int nearest(int value, double x) const;
  float at(int value, int level) const { return grid_[static_cast<size_t>(level * format_->block_values + value)]; }

 private:
  double error(const float* values, const double* weights) const;

  const Format* format_;
  std::vector<float> grid_;  // [levels, block_values]
  std::vector<float> clamped_;
  std::vector<uint8_t> block_;
};

}  // namespace millrace
