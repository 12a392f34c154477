#include "kv/codecs/normal_codes.h"

#include <cmath>
#include <numbers>

#include "tensor/half.h"

namespace millrace {
namespace {

double density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
double probability(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

// Lloyd's iteration: a code is the mean of the values that are nearest to it. Rounded to f16, which is coarser than
// what libraries' functions may differ by.
NormalCodes fitted(int bits, bool unit) {
  const auto count = size_t{1} << bits;
  std::array<double, 16> code{};
  for (size_t i = 0; i < count; ++i) code[i] = (static_cast<double>(i) + 0.5) * 4 / static_cast<double>(count) - 2;
  for (int round = 0; round < 2000; ++round) {
    const std::array<double, 16> old = code;
    for (size_t i = 0; i < count; ++i) {
      const double low = i > 0 ? (old[i - 1] + old[i]) / 2 : -40;
      const double high = i + 1 < count ? (old[i] + old[i + 1]) / 2 : 40;
      code[i] = (density(low) - density(high)) / (probability(high) - probability(low));
    }
  }
  NormalCodes out{};
  for (size_t i = 0; i < count; ++i) {
    const double symmetric = (code[i] - code[count - 1 - i]) / 2, top = (code[count - 1] - code[0]) / 2;
    out[i] = f16_to_f32(f32_to_f16(static_cast<float>(unit ? symmetric / top : symmetric)));
  }
  return out;
}

std::array<NormalCodes, 3> all_fitted(bool unit) { return {fitted(2, unit), fitted(3, unit), fitted(4, unit)}; }

}  // namespace

const NormalCodes& normal_codes(int bits) {
  static const std::array<NormalCodes, 3> all = all_fitted(false);
  return all[static_cast<size_t>(bits - 2)];
}

const NormalCodes& unit_codes(int bits) {
  static const std::array<NormalCodes, 3> all = all_fitted(true);
  return all[static_cast<size_t>(bits - 2)];
}

}  // namespace millrace
