// LevelScales: the scales of one block of any format with Format::set_level, independent of the format's packing:
//
//   value = d * scale[g] * unit(level) - dmin * minimum[g]        g: the group, a run of values with its own scale
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
  float d = 0, dmin = 0;  // as the block stores them
  int scale[16] = {};
  int minimum[16] = {};
};

struct ScaleLayout {
  std::string_view format;
  int groups = 1;
  int least_scale = 1, most_scale = 1;  // range of scale[g]
  int most_minimum = 0;                 // maximum of minimum[g]; 0: there are no minimums
  bool free_minimum = false;            // dmin may be negative
  bool power_of_two = false;            // d
  void (*store)(const LevelScales& scales, uint8_t* block) = nullptr;  // leaves the levels alone

  bool sub_scales() const { return most_scale > 1; }
};

// Null: a format without levels.
const ScaleLayout* find_scale_layout(const Format& format);

// unit(level) of every level.
std::vector<float> level_units(const Format& format, const ScaleLayout& layout);

// The nearest d (or dmin) that a block can store.
float storable_scale(const ScaleLayout& layout, double d);

}  // namespace millrace
