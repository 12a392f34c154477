// LevelScales: the scales of one block, unpacked, for any format with Format::set_level:
//
//   value = d * scale[g] * unit(level) - dmin * minimum[g]        g: index of a group of values with one scale
//
//            groups        d            scale            dmin, minimum
//   q4_0     1             f16          1                none
//   q4_1     1             f16          1                dmin f16 of either sign, minimum 1
//   q4_k     8 x 32        f16          0 .. 63          dmin f16, minimum 0 .. 63
//   q3_k     16 x 16       f16          -32 .. 31        none
//   mxfp4    1             power of 2   1                none
//
// Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/format.h"

namespace millrace {

struct LevelScales {
  float d = 0, dmin = 0;  // rounded as the block stores them
  int scale[16] = {};
  int minimum[16] = {};
};

struct ScaleLayout {
  std::string_view format;
  int groups = 1;
  int least_scale = 1, most_scale = 1;  // range of scale[g]
  int most_minimum = 0;                 // maximum of minimum[g]; 0: there are no minimums
  bool free_minimum = false;            // true: dmin may be negative
  bool power_of_two = false;            // true: d is a power of two
  void (*store)(const LevelScales& scales, uint8_t* block) = nullptr;  // writes the scales only, not the levels

  bool sub_scales() const { return most_scale > 1; }
};

// Returns null for a format without levels.
const ScaleLayout* find_scale_layout(const Format& format);

// Returns unit(level) for every level.
std::vector<float> level_units(const Format& format, const ScaleLayout& layout);

// Returns the value nearest to d (or dmin) that a block can store.
float storable_scale(const ScaleLayout& layout, double d);

}  // namespace millrace
