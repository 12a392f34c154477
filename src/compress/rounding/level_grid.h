// LevelGrid: the values that each position of one block can have under the block's scales, by level. It also chooses
// the scales. For any format with Format::set_level. Not thread-safe.
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

  // Reads the scales of a block; its levels have no effect.
  void read(const uint8_t* block);
  // Reads one position: only its values are valid afterwards.
  void read(const uint8_t* block, int value);
  // Encodes `values` to `block` and reads its scales. If `search` is not null, it encodes them. Otherwise, tries plain
  // rounding, and plain rounding of the values clamped to 1 - k / 32 of their range for k up to `clips`. The encoding
  // with the smallest sum of weight * (value - nearest)^2 is used.
  void choose(const float* values, const double* weights, int clips, ScaleSearch* search, uint8_t* block);

  // Returns the level nearest to x at position `value` of the block; of two equally near, the lower one.
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
