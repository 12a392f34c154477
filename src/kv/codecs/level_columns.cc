#include "kv/codecs/level_columns.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tensor/half.h"

namespace millrace {
namespace {

using Floats = float __attribute__((vector_size(16)));
using Ints = int32_t __attribute__((vector_size(16)));
constexpr int64_t kLanes = 4, kVectors = kColumns / kLanes, kBatch = 4;  // vectors that a pass keeps in registers

Floats vector_at(const float* from) {
  Floats out;
  std::memcpy(&out, from, sizeof(out));
  return out;
}

void put(float* to, Floats x) { std::memcpy(to, &x, sizeof(x)); }

// Calls of(t, first column, vector of the batch) for all values of a batch of columns, token by token.
template <typename Of>
void for_batch(int64_t tokens, int64_t first, const Of& of) {
  for (int64_t t = 0; t < tokens; ++t)
#pragma GCC unroll 4
    for (int64_t v = 0; v < kBatch; ++v) of(t, first + v * kLanes, v);
}

// Half the range and its inverse, as level_codec.cc has them for one group.
struct Grid {
  alignas(16) float zero[kColumns], inverse[kColumns];
  explicit Grid(const LevelColumns& c) {
    for (int64_t i = 0; i < kColumns; ++i) {
      const float scale = f16_to_f32(c.scale[i]);
      zero[i] = f16_to_f32(c.zero[i]);
      inverse[i] = scale > 0 ? 1.0f / scale : 0.0f;
    }
  }
};

void narrow(const int32_t* from, uint8_t* to) {
  for (int64_t i = 0; i < kColumns; ++i) to[i] = static_cast<uint8_t>(from[i]);
}

// Calls level(vector of positions on the grid) for all values, and stores what it returns.
template <typename Level>
void fit(LevelColumns& c, const Level& level) {
  const Grid grid(c);
  Floats zero[kVectors], inverse[kVectors];
  for (int64_t v = 0; v < kVectors; ++v) {
    zero[v] = vector_at(grid.zero + v * kLanes);
    inverse[v] = vector_at(grid.inverse + v * kLanes);
  }
  for (int64_t t = 0; t < c.tokens; ++t) {
    int32_t wide[kColumns];
    for (int64_t v = 0; v < kVectors; ++v) {
      const Ints levels = level((vector_at(c.values[t] + v * kLanes) - zero[v]) * inverse[v]);
      std::memcpy(wide + v * kLanes, &levels, sizeof(levels));
    }
    narrow(wide, c.levels[t]);
  }
}

// How many of the codes' middles are below each value.
template <int kBits>
void fit_any_codes(LevelColumns& c, const float* codes) {
  constexpr int kMiddles = (1 << kBits) - 1;
  std::array<float, kMiddles> middles;
  for (size_t i = 0; i < kMiddles; ++i) middles[i] = (codes[i] + codes[i + 1]) / 2;
  fit(c, [&](Floats x) {
    Ints level{};
    for (size_t j = 0; j < kMiddles; ++j) level -= x > middles[j];
    return level;
  });
}

// Of codes that are symmetric about zero: how many middles of the upper half are below the value's size.
template <int kBits>
void fit_symmetric_codes(LevelColumns& c, const float* codes) {
  constexpr int kHalf = 1 << (kBits - 1);
  std::array<float, kHalf - 1> middles;
  for (size_t i = 0; i < kHalf - 1; ++i) middles[i] = (codes[kHalf + i] + codes[kHalf + i + 1]) / 2;
  fit(c, [&](Floats x) {
    const Floats size = x > 0 ? x : -x;
    Ints level{};
    for (size_t j = 0; j < kHalf - 1; ++j) level -= size > middles[j];
    return x > 0 ? level + kHalf : kHalf - 1 - level;
  });
}

}  // namespace

void LevelColumns::find_ranges() {
  for (int64_t first = 0; first < kColumns; first += kBatch * kLanes) {
    Floats least[kBatch], most[kBatch];
    for (int64_t v = 0; v < kBatch; ++v) least[v] = most[v] = vector_at(values[0] + first + v * kLanes);
    for_batch(tokens, first, [&](int64_t t, int64_t at, int64_t v) {
      const Floats x = vector_at(values[t] + at);
      least[v] = x < least[v] ? x : least[v];
      most[v] = x > most[v] ? x : most[v];
    });
    for (int64_t v = 0; v < kBatch; ++v) {
      put(low + first + v * kLanes, least[v]);
      put(high + first + v * kLanes, most[v]);
    }
  }
}

// The value that is farthest from the median is the highest one if the median is below the middle of the range, which
// is to say that more than half of the values are, and otherwise the lowest.
void LevelColumns::take_outliers(int64_t count, uint8_t* to) {
  find_ranges();
  for (int64_t first = 0; first < kColumns; first += kBatch * kLanes) {
    Floats middle[kBatch], lowest[kBatch], highest[kBatch], farthest[kBatch];
    Ints below[kBatch] = {}, place[kBatch];
    for (int64_t v = 0; v < kBatch; ++v) {
      lowest[v] = vector_at(low + first + v * kLanes);
      highest[v] = vector_at(high + first + v * kLanes);
      middle[v] = (lowest[v] + highest[v]) * 0.5f;
      place[v] = Ints{} + static_cast<int32_t>(tokens);
    }
    for_batch(tokens, first, [&](int64_t t, int64_t at, int64_t v) { below[v] -= vector_at(values[t] + at) < middle[v]; });
    for (int64_t v = 0; v < kBatch; ++v)
      farthest[v] = below[v] > static_cast<int32_t>(tokens / 2) ? highest[v] : lowest[v];
    for (int64_t t = tokens - 1; t >= 0; --t)  // the first of equal ones is left
#pragma GCC unroll 4
      for (int64_t v = 0; v < kBatch; ++v)
        place[v] = vector_at(values[t] + first + v * kLanes) == farthest[v] ? Ints{} + static_cast<int32_t>(t) : place[v];
    for (int64_t i = 0; i < kBatch * kLanes && first + i < count; ++i, to += 4) {
      const int64_t v = i / kLanes, lane = i % kLanes;
      const auto at = static_cast<uint16_t>(place[v][lane]);
      float& value = values[at][first + i];
      const uint16_t half = f32_to_f16(value);
      std::memcpy(to, &at, 2);
      std::memcpy(to + 2, &half, 2);
      value = value == highest[v][lane] ? lowest[v][lane] : highest[v][lane];
    }
  }
}

void LevelColumns::fit_whole_levels(float top) {
  fit(*this, [&](Floats x) {
    x += 0.5f;
    x = x > 0 ? x : Floats{};
    x = x < top ? x : Floats{} + top;
    return __builtin_convertvector(x, Ints);
  });
}

void LevelColumns::fit_codes(int bits, const float* codes) {
  bool symmetric = true;
  for (int i = 0, last = (1 << bits) - 1; i < last - i; ++i) symmetric &= codes[i] == -codes[last - i];
  const auto run = [&]<int kBits>() {
    symmetric ? fit_symmetric_codes<kBits>(*this, codes) : fit_any_codes<kBits>(*this, codes);
  };
  if (bits == 2) return run.template operator()<2>();
  if (bits == 3) return run.template operator()<3>();
  run.template operator()<4>();
}

}  // namespace millrace
