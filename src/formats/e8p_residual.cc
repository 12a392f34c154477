#include "formats/e8p_residual.h"

#include <array>
#include <bit>
#include <cmath>

namespace millrace {
namespace {

using E8Point = std::array<int8_t, kE8pValues>;

constexpr std::array<E8Point, kE8Points> list_points() {
  std::array<E8Point, kE8Points> out = {};
  size_t count = 1;  // 0 is the first
  for (size_t a = 0; a < kE8pValues; ++a)
    for (size_t b = a + 1; b < kE8pValues; ++b)
      for (int signs = 0; signs < 4; ++signs, ++count) {
        out[count][a] = signs >= 2 ? -2 : 2;
        out[count][b] = signs % 2 != 0 ? -2 : 2;
      }
  for (unsigned signs = 0; signs < 128; ++signs, ++count)
    for (size_t i = 0; i < kE8pValues; ++i) {
      const bool minus = i < 7 ? (signs >> i & 1) != 0 : std::popcount(signs) % 2 != 0;
      out[count][i] = minus ? -1 : 1;
    }
  for (int sign : {4, -4})
    for (size_t i = 0; i < kE8pValues && count < kE8Points; ++i, ++count) out[count][i] = static_cast<int8_t>(sign);
  return out;
}

constexpr std::array<E8Point, kE8Points> kPoints = list_points();
static_assert(kPoints[kE8Points - 1][6] == -4 && kPoints[kE8Points - 15][0] == 4);

// The nearest of the 256 points to x[8], in halves.
int nearest_e8(const float* x, float* error) {
  int best = 0;
  float least = INFINITY;
  for (int p = 0; p < kE8Points; ++p) {
    const E8Point& point = kPoints[static_cast<size_t>(p)];
    float sum = 0;
    for (size_t i = 0; i < kE8pValues; ++i) {
      const float rest = x[i] - static_cast<float>(point[i]);
      sum += rest * rest;
    }
    if (!(sum < least)) continue;
    least = sum;
    best = p;
  }
  *error = least;
  return best;
}

// x less the nearest point of E8P, in that one's quarters, times `by`.
uint16_t rest_of_e8p(const float* x, float by, float* rest) {
  const uint16_t code = nearest_e8p(x).code;
  int8_t quarters[kE8pValues];
  e8p_values(code, quarters);
  for (int i = 0; i < kE8pValues; ++i) rest[i] = (x[i] - kE8pUnit * static_cast<float>(quarters[i])) * by;
  return code;
}

}  // namespace

void e8_values(int point, int8_t* halves) {
  for (size_t i = 0; i < kE8pValues; ++i) halves[i] = kPoints[static_cast<size_t>(point)][i];
}

E8pResidual nearest_e8p_3(const float* x) {
  float rest[kE8pValues], error = 0;
  const uint16_t first = rest_of_e8p(x, 1 / kE8p3Unit, rest);
  const auto second = static_cast<uint32_t>(nearest_e8(rest, &error));
  return {first | second << 16, error * kE8p3Unit * kE8p3Unit};
}

E8pResidual nearest_e8p_4(const float* x) {
  constexpr float kFiner = 3.5f;
  float rest[kE8pValues];
  const uint16_t first = rest_of_e8p(x, kFiner, rest);
  const E8pChoice second = nearest_e8p(rest);
  return {first | static_cast<uint32_t>(second.code) << 16, second.error / (kFiner * kFiner)};
}

void e8p_3_levels(uint32_t code, int8_t* levels) {
  int8_t halves[kE8pValues];
  e8p_values(static_cast<uint16_t>(code), levels);
  e8_values(static_cast<int>(code >> 16 & 255), halves);
  for (int i = 0; i < kE8pValues; ++i) levels[i] = static_cast<int8_t>(levels[i] + halves[i]);
}

void e8p_4_levels(uint32_t code, int8_t* levels) {
  int8_t finer[kE8pValues];
  e8p_values(static_cast<uint16_t>(code), levels);
  e8p_values(static_cast<uint16_t>(code >> 16), finer);
  for (int i = 0; i < kE8pValues; ++i) levels[i] = static_cast<int8_t>(7 * levels[i] + 2 * finer[i]);
}

uint32_t load_e8p_3(const uint8_t* block, int p) {
  return load_u16(block + 2 + 2 * p) | static_cast<uint32_t>(block[kE8pBlockBytes + p]) << 16;
}

uint32_t load_e8p_4(const uint8_t* block, int p) {
  return load_u16(block + 2 + 2 * p) | static_cast<uint32_t>(load_u16(block + kE8pBlockBytes + 2 * p)) << 16;
}

void store_e8p_3(uint8_t* block, int p, uint32_t code) {
  store_u16(block + 2 + 2 * p, static_cast<uint16_t>(code));
  block[kE8pBlockBytes + p] = static_cast<uint8_t>(code >> 16);
}

void store_e8p_4(uint8_t* block, int p, uint32_t code) {
  store_u16(block + 2 + 2 * p, static_cast<uint16_t>(code));
  store_u16(block + kE8pBlockBytes + 2 * p, static_cast<uint16_t>(code >> 16));
}

}  // namespace millrace
