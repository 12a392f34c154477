// ScaleSearch: finds the scales and levels of a block by weighted least squares, for any format with Format::set_level.
//
//   range of each group, clipped by several parts  ->  nearest levels  ->  scale and minimum of least error for these
//   best of each group  ->  several d, dmin  ->  sub-scales and sub-minimums that leave the least error under each
//
// Plain rounding covers the whole range of a block, even if clipping its largest value would cost less. The search
// keeps the result of plain rounding if that has the smaller error. All sums are in double precision, in index order.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "compress/rounding/level_scales.h"

namespace millrace {

class ScaleSearch {
 public:
  // The format must have levels > 0.
  explicit ScaleSearch(const Format& format);

  // Encodes one block of values. Returns its error: the sum of weight * (value - decoded value)^2.
  double choose(const float* values, const double* weights, uint8_t* block);

 private:
  struct Fit {
    double scale = 0, minimum = 0;
  };
  // Weighted sums over a group's values x, where u is the unit of the level nearest to x.
  struct Sums {
    double w = 0, wu = 0, wuu = 0, wx = 0, wux = 0, wxx = 0;
  };

  int nearest(double unit) const;  // returns an index into units_
  double measure(int group, Fit fit) const;
  Sums sums(int group, Fit fit) const;
  bool refit(const Sums& sums, Fit& fit) const;
  static double error_of(const Sums& sums, Fit fit);
  Fit improve(int group, Fit fit) const;
  Fit fit_group(int group) const;
  Fit fit_symmetric(int group) const;
  Fit fit_affine(int group) const;
  std::vector<double> candidates(bool minimum) const;
  double evaluate(LevelScales& scales) const;
  void choose_group(int group, LevelScales& scales, double& error) const;
  bool refine(LevelScales& scales) const;
  void store(const LevelScales& scales, uint8_t* block) const;
  double stored_error(const uint8_t* block);

  const Format* format_;
  const ScaleLayout* layout_;
  int group_values_;
  bool has_minimum_, uniform_;
  double clip_;                  // maximum fraction of a range that is clipped
  std::vector<double> units_;    // ascending
  std::vector<double> middles_;  // midpoints between adjacent units_
  std::vector<int> levels_;      // level of each entry of units_
  // Values of the current block.
  const float* values_ = nullptr;
  const double* weights_ = nullptr;
  std::vector<Fit> fits_;  // fit of each group
  std::vector<float> decoded_;
  std::vector<uint8_t> plain_;
};

}  // namespace millrace
