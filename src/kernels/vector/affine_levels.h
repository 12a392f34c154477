// Converts levels of AffineRows and LevelTiles to f32, or to the codes that replace them, one vector at a time. Include
// after a simd_*.h and its level_tables_*.h.
#pragma once

#include <cstring>

#include "kernels/kernel_table.h"

namespace millrace {
namespace {

// is_tabled() returns true if levels are looked up in vectors (LevelTables), and not converted to f32 and multiplied.
// This is the case if the instruction set has tables and they are faster.
template <typename T, int kBits>
constexpr bool kHasTables = requires(const uint8_t* unit, Simd::F* index) {
  T::template unit_index<kBits>(unit, index);
};
template <int kBits, bool kCodes, typename T = LevelTables>
constexpr bool is_tabled() {
  if constexpr (kHasTables<T, kBits>) return kCodes || T::template kIsLess<kBits>;
  return false;
}

alignas(64) constexpr float kWholeCodes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// Returns in lane i the level Simd::kLanes * part + i of a unit.
template <int kBits>
inline Simd::F unit_levels(const uint8_t* unit, int part) {
  if constexpr (kBits != 3) return Simd::template levels<kBits>(unit, part);
  uint32_t top;
  std::memcpy(&top, unit + 8, 4);
  return Simd::fma(Simd::spread_bits(top, part * Simd::kLanes), Simd::set(4.0f), Simd::template levels<2>(unit, part));
}

template <int kBits>
constexpr int kUnitVectors = static_cast<int>(affine_unit_values(kBits)) / Simd::kLanes;

// Returns all levels of a unit, or their codes.
template <int kBits, bool kCodes, typename T = LevelTables>
[[gnu::always_inline]] inline void unit_codes(const uint8_t* unit, const float* codes, Simd::F* out) {
  if constexpr (is_tabled<kBits, kCodes, T>()) {
    const typename T::template Table<kBits> table(kCodes ? codes : kWholeCodes, Simd::set(1.0f), Simd::zero());
    T::template unit_index<kBits>(unit, out);
    for (int v = 0; v < kUnitVectors<kBits>; ++v) out[v] = table.at(out[v]);
  } else {
    for (int v = 0; v < kUnitVectors<kBits>; ++v) {
      out[v] = unit_levels<kBits>(unit, v);
      if constexpr (kCodes) out[v] = Simd::template look_up<kBits>(codes, out[v]);
    }
  }
}

// Variant that also applies a scale and a zero, with or without tables.
template <int kBits, bool kCodes, bool kTabled = is_tabled<kBits, kCodes>(), typename T = LevelTables>
class ScaledUnits {
 public:
  ScaledUnits(const float* codes, Simd::F scale, Simd::F zero) : table_(kCodes ? codes : kWholeCodes, scale, zero) {}
  [[gnu::always_inline]] void decode(const uint8_t* unit, Simd::F* out) const {
    T::template unit_index<kBits>(unit, out);
    for (int v = 0; v < kUnitVectors<kBits>; ++v) out[v] = table_.at(out[v]);
  }

 private:
  typename T::template Table<kBits> table_;
};
template <int kBits, bool kCodes, typename T>
class ScaledUnits<kBits, kCodes, false, T> {
 public:
  ScaledUnits(const float* codes, Simd::F scale, Simd::F zero) : codes_(codes), scale_(scale), zero_(zero) {}
  [[gnu::always_inline]] void decode(const uint8_t* unit, Simd::F* out) const {
    unit_codes<kBits, kCodes, T>(unit, codes_, out);
    for (int v = 0; v < kUnitVectors<kBits>; ++v) out[v] = Simd::fma(out[v], scale_, zero_);
  }

 private:
  const float* codes_;
  Simd::F scale_, zero_;
};

// One unit of each of Simd::kLanes rows, with transposed 32-bit words: words[c] has word c of every row.
template <int kBits, bool kCodes, typename T = LevelTables>
class TransposedUnit {
 public:
  static constexpr bool kTabled = is_tabled<kBits, kCodes, T>();

  explicit TransposedUnit(const Simd::F* words) : words_(words) {
    if constexpr (kTabled && kBits == 3) {
      T::join_bits(words, joined_);
      words_ = joined_;
    }
  }
  // Returns level i as the lowest bits of each lane.
  [[gnu::always_inline]] Simd::F index(int i) const {
    if constexpr (kBits == 3) return T::shift_right(words_[i % 8 / 4 * 2 + i / 8 % 2], i % 4 * 8 + i / 16 * 4);
    return T::shift_right(words_[i % 8 / 4], i % 4 * 8 + i / 8 * kBits);
  }
  // Returns level i or its code, without a table.
  [[gnu::always_inline]] Simd::F code(int i, const float* codes) const {
    constexpr int kLow = kBits == 4 ? 4 : 2;
    Simd::F level = Simd::template bits_at<kLow>(words_[i % 8 / 4], i % 4 * 8 + i / 8 * kLow);
    if constexpr (kBits == 3) level = Simd::fma(Simd::template bits_at<1>(words_[2], i), Simd::set(4.0f), level);
    if constexpr (kCodes) return Simd::template look_up<kBits>(codes, level);
    return level;
  }

 private:
  const Simd::F* words_;
  Simd::F joined_[4];
};

}  // namespace
}  // namespace millrace
