// Plain rounding to the I-quants. A small search chooses the scales of sub-blocks. For each group of values, it finds
// the nearest point of the grid by comparing with all points. Deterministic. Slow: some thousand operations a value.
#pragma once

#include <vector>

#include "formats/iq_block.h"

namespace millrace {

enum class IqSigns : uint8_t {
  free,   // one bit for each value
  even,   // the number of minus signs in eight values is even
  shift,  // no signs; a group of values is shifted up or down
};

struct IqGrid {
  const uint16_t* points = nullptr;
  int count = 0;
  int digits = 8;                 // number of values of a point: 8 or 4
  const int8_t* codes = nullptr;  // [16]
  float unit = 1;
  IqSigns signs = IqSigns::free;
  int shifted = 8;        // number of values that share a shift
  int scale_values = 16;  // number of values of a sub-block
  int most_scale = 31;    // maximum of 2 s + 1
};

struct IqChoice {
  uint16_t point[64];  // index in the grid, for each group
  uint8_t signs[32];   // signs for each 8 values; for IqSigns::shift, 1 if shifted down
  uint8_t scale[16];   // s of each sub-block
  uint16_t d;          // f16
};

class IqRounding {
 public:
  explicit IqRounding(const IqGrid& grid);

  void choose(const float* x, IqChoice& out);  // x: kIqValues finite values

 private:
  struct Fit {
    double error = 0;
    double cross = 0, power = 0;  // sums of x * level and of level^2
  };
  Fit round_eight(const float* x, float scale, bool down, uint16_t* point, uint8_t& signs);
  Fit round_sub_block(const float* x, int first, float scale, IqChoice& out);
  int nearest(const float* target, bool down);
  float guess_scale(const float* x) const;

  IqGrid grid_;
  std::vector<float> values_[2];  // [digit][point], shifted up and shifted down; both are equal without shifts
  std::vector<float> norms_[2];
  std::vector<float> scores_;
};

// Encodes rows. `store` writes a choice in the format's layout.
template <int kBytes>
void encode_iq(const float* source, uint8_t* destination, int64_t n, const IqGrid& grid,
               void (*store)(const IqChoice&, uint8_t*)) {
  IqRounding rounding(grid);
  encode_blocks<kIqValues, kBytes>(source, destination, n, [&](const float* x, uint8_t* block) {
    IqChoice choice;
    rounding.choose(x, choice);
    store(choice, block);
  });
}

}  // namespace millrace
