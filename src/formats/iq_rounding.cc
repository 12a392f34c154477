#include "formats/iq_rounding.h"

#include <algorithm>
#include <cmath>

namespace millrace {

IqRounding::IqRounding(const IqGrid& grid) : grid_(grid), scores_(static_cast<size_t>(grid.count)) {
  const int bits = grid.digits == 8 ? 2 : 4;
  for (int down = 0; down < (grid.signs == IqSigns::shift ? 2 : 1); ++down) {
    std::vector<float>& values = values_[down];
    norms_[down].resize(static_cast<size_t>(grid.count));
    for (int i = 0; i < grid.digits; ++i) {
      for (int p = 0; p < grid.count; ++p) {
        const int digit = grid.points[p] >> (bits * i) & ((1 << bits) - 1);
        const auto value = static_cast<float>(grid.codes[digit + 4 * down]);
        values.push_back(value);
        norms_[down][static_cast<size_t>(p)] += value * value;
      }
    }
  }
}

// The point with the least |point|^2 - 2 point * target; the first one of several.
int IqRounding::nearest(const float* target, bool down) {
  const float* values = values_[down].data();
  std::ranges::copy(norms_[down], scores_.begin());
  for (int i = 0; i < grid_.digits; ++i, values += grid_.count) {
    const float factor = -2 * target[i];
    for (int p = 0; p < grid_.count; ++p) scores_[static_cast<size_t>(p)] += factor * values[p];
  }
  return static_cast<int>(std::ranges::min_element(scores_) - scores_.begin());
}

IqRounding::Fit IqRounding::round_eight(const float* x, float scale, bool down, uint16_t* point, uint8_t& signs) {
  const float inverse = scale > 0 ? 1 / scale : 0.0f;
  float target[8], sign[8];
  int negative = 0;
  for (int i = 0; i < 8; ++i) {
    const bool minus = grid_.signs != IqSigns::shift && x[i] < 0;
    negative |= minus << i;
    sign[i] = minus ? -1.0f : 1.0f;
    target[i] = sign[i] * x[i] * inverse;
  }
  if (grid_.signs == IqSigns::even && __builtin_popcount(static_cast<unsigned>(negative)) % 2 != 0) {
    const auto least = std::min_element(target, target + 8) - target;
    negative ^= 1 << least;
    sign[least] = -sign[least];
    target[least] = -target[least];
  }
  signs = static_cast<uint8_t>(grid_.signs == IqSigns::shift ? down : negative);
  Fit fit;
  for (int i = 0; i < 8; i += grid_.digits) {
    const int index = nearest(target + i, down);
    *point++ = static_cast<uint16_t>(index);
    for (int j = 0; j < grid_.digits; ++j) {
      const double level = double{sign[i + j]} * values_[down][static_cast<size_t>(j * grid_.count + index)];
      const double difference = x[i + j] - scale * level;
      fit.error += difference * difference;
      fit.cross += x[i + j] * level;
      fit.power += level * level;
    }
  }
  return fit;
}

IqRounding::Fit IqRounding::round_sub_block(const float* x, int first, float scale, IqChoice& out) {
  const int points = 8 / grid_.digits;  // of 8 values
  Fit sum;
  for (int begin = first; begin < first + grid_.scale_values; begin += grid_.shifted) {
    Fit best;
    for (bool down : {false, true}) {
      if (down && grid_.signs != IqSigns::shift) break;
      uint16_t point[16];
      uint8_t signs[4];
      Fit fit;
      for (int i = 0; i < grid_.shifted / 8; ++i) {
        const Fit eight = round_eight(x + begin + 8 * i, scale, down, point + i * points, signs[i]);
        fit.error += eight.error;
        fit.cross += eight.cross;
        fit.power += eight.power;
      }
      if (down && best.error <= fit.error) break;
      best = fit;
      std::copy_n(point, grid_.shifted / 8 * points, out.point + begin / 8 * points);
      std::copy_n(signs, grid_.shifted / 8, out.signs + begin / 8);
    }
    sum.error += best.error;
    sum.cross += best.cross;
    sum.power += best.power;
  }
  return sum;
}

// The scale at which codes for single values, whatever points the grid has, are best: the largest magnitude becomes the
// smallest code, as equal values need, or the largest one or somewhat more.
float IqRounding::guess_scale(const float* x) const {
  const float largest = std::fabs(largest_signed(x, grid_.scale_values));
  int most = 0, least = 127;
  for (int i = 0; i < 16; ++i) {
    if (grid_.codes[i] == 0) continue;
    most = std::max(most, std::abs(int{grid_.codes[i]}));
    least = std::min(least, std::abs(int{grid_.codes[i]}));
  }
  double best_error = INFINITY;
  float best = 0;
  const float top = static_cast<float>(most);
  for (float divisor : {static_cast<float>(least), top, 1.2f * top, 1.45f * top}) {
    const float scale = largest / divisor;
    double error = 0;
    for (int i = 0; i < grid_.scale_values; ++i) {
      float nearest = INFINITY;
      for (int code = 0; code < 16; ++code)
        if (grid_.codes[code] != 0)
          nearest = std::min(nearest, std::fabs(x[i] - scale * static_cast<float>(grid_.codes[code])));
      error += double{nearest} * nearest;
    }
    if (!(error < best_error)) continue;
    best_error = error;
    best = scale;
  }
  return best;
}

void IqRounding::choose(const float* x, IqChoice& out) {
  const int sub_blocks = kIqValues / grid_.scale_values;
  float scales[16] = {};
  for (int b = 0; b < sub_blocks; ++b) {
    const int first = b * grid_.scale_values;
    scales[b] = guess_scale(x + first);
    const Fit fit = round_sub_block(x, first, scales[b], out);  // the least squares for these points
    if (fit.cross > 0) scales[b] = static_cast<float>(fit.cross / fit.power);
  }
  const float largest = *std::max_element(scales, scales + sub_blocks);
  const F16Scale d = make_f16_scale(largest / (grid_.unit * static_cast<float>(grid_.most_scale)));
  out.d = d.bits;
  for (int b = 0; b < sub_blocks; ++b) {
    const float step = d.stored * grid_.unit;
    const int s = step > 0 ? round_clamped((scales[b] / step - 1) / 2, 0, (grid_.most_scale - 1) / 2) : 0;
    out.scale[b] = static_cast<uint8_t>(s);
    round_sub_block(x, b * grid_.scale_values, step * static_cast<float>(2 * s + 1), out);
  }
}

}  // namespace millrace
