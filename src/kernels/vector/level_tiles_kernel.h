// Decodes tiles of levels (LevelTiles) to f32 for the attention kernel: keys transposed, with a lane for each token,
// and values as rows. Levels are transposed as packed words of 8 to 16 levels, so transposing takes almost no time.
// Include after a simd_*.h and affine_levels.h.
#pragma once

#include <cstring>

#include "kernels/kernel_table.h"

namespace millrace {
namespace {

constexpr int64_t kTileTokens = 32;  // number of tokens of one call

// A part of a block's tile: tokens [first, first + kTileTokens).
struct TileView {
  const LevelTiles& tiles;
  const uint8_t* tile;
  int64_t first;
  int64_t dims;
  // Levels of keys and values that are needed next. They are prefetched while this part is decoded, a token at a time.
  const uint8_t *next_keys = nullptr, *next_values = nullptr;

  const uint8_t* levels(int64_t token) const { return tile + (first + token) * tiles.stride; }
  const uint8_t* scales() const { return tile + tiles.scales_at; }
  const uint8_t* zeros() const { return tile + tiles.zeros_at; }
  int64_t groups() const { return (dims + tiles.group - 1) / tiles.group; }  // number of groups of a token
};

inline void widen_halves(const uint8_t* halves, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + Simd::kLanes <= n; i += Simd::kLanes) Simd::store(out + i, Simd::load_f16(halves + 2 * i));
  for (; i < n; ++i) out[i] = Simd::f16(halves + 2 * i);
}

// Loads the scales of one group, for Simd::kLanes tokens from `token` on.
inline Simd::F scales_of_tokens(const TileView& view, const uint8_t* halves, int64_t token, int64_t group) {
  const int64_t groups = view.groups();
  const uint8_t* first = halves + 2 * ((view.first + token) * groups + group);
  if (groups == 1) return Simd::load_f16(first);
  uint8_t each[2 * Simd::kLanes];
  for (int r = 0; r < Simd::kLanes; ++r) std::memcpy(each + 2 * r, first + 2 * r * groups, 2);
  return Simd::load_f16(each);
}

// Calls each(unit, words) for the units of Simd::kLanes tokens from `token` on.
template <int kBits, typename Each>
[[gnu::always_inline]] inline void for_transposed_units(const TileView& view, int64_t token, const Each& each) {
  constexpr int64_t kValues = affine_unit_values(kBits), kBytes = affine_unit_bytes(kBits);
  const uint8_t* rows[Simd::kLanes];
  for (int r = 0; r < Simd::kLanes; ++r) rows[r] = view.levels(token + r);
  const int64_t units = (view.dims + kValues - 1) / kValues;
  for (int64_t u = 0; u < units;) {
    Simd::F words[4];
    Simd::transpose_words(rows, u * kBytes, words);
    each(u++, words);
    if constexpr (kBytes == 8) {
      if (u < units) each(u++, words + 2);
    }
  }
}

// Stores value(i) for each value i of a unit, for Simd::kLanes tokens.
template <int kBits, typename Value>
[[gnu::always_inline]] inline void store_unit(float* kt, const Value& value) {
  constexpr int kValues = static_cast<int>(affine_unit_values(kBits));
#pragma GCC unroll 32
  for (int i = 0; i < kValues; ++i) Simd::store(kt + i * kTileTokens, value(i));
}

// Transposes keys whose tokens share scales for each column. `scratch`: 18 arrays of dims, rounded up to whole units.
template <int kBits, bool kCodes, typename T = LevelTables>
void transpose_columns(const TileView& view, float* scratch, float* kt) {
  using Unit = TransposedUnit<kBits, kCodes>;
  constexpr int64_t kValues = affine_unit_values(kBits);
  const float* codes = kCodes ? view.tiles.codes : kWholeCodes;
  const int64_t padded = (view.dims + kValues - 1) / kValues * kValues;
  const int64_t at = 2 * (view.first / view.tiles.key_tokens * view.dims);
  float *scale = scratch, *zero = scratch + padded;
  for (int64_t i = view.dims; i < padded; ++i) scale[i] = zero[i] = 0;
  widen_halves(view.scales() + at, view.dims, scale);
  widen_halves(view.zeros() + at, view.dims, zero);
  [[maybe_unused]] float* const tables = zero + padded;
  if constexpr (Unit::kTabled) {
    using Table = typename T::template Table<kBits>;
    for (int64_t d = 0; d < padded; ++d)
      Table(codes, Simd::set(scale[d]), Simd::set(zero[d])).store(tables + d * Table::kFloats);
  }
  for (int64_t token = 0; token < kTileTokens; token += Simd::kLanes)
    for_transposed_units<kBits>(view, token, [&](int64_t unit, const Simd::F* words) {
      const Unit levels(words);
      const int64_t first = unit * kValues;
      if constexpr (Unit::kTabled) {
        using Table = typename T::template Table<kBits>;
        const float* const own = tables + first * Table::kFloats;
        store_unit<kBits>(kt + first * kTileTokens + token,
                          [&](int i) { return Table::read(own + i * Table::kFloats).at(levels.index(i)); });
      } else {
        const float *s = scale + first, *z = zero + first;
        store_unit<kBits>(kt + first * kTileTokens + token,
                          [&](int i) { return Simd::fma(levels.code(i, codes), Simd::set(s[i]), Simd::set(z[i])); });
      }
    });
}

// Transposes keys whose tokens have separate scales.
template <int kBits, bool kCodes, typename T = LevelTables>
void transpose_tokens(const TileView& view, float* kt) {
  using Unit = TransposedUnit<kBits, kCodes>;
  constexpr int64_t kValues = affine_unit_values(kBits);
  const float* codes = kCodes ? view.tiles.codes : kWholeCodes;
  for (int64_t token = 0; token < kTileTokens; token += Simd::kLanes) {
    int64_t group = -1;
    Simd::F scale = Simd::zero(), zero = Simd::zero();
    for_transposed_units<kBits>(view, token, [&](int64_t unit, const Simd::F* words) {
      if (unit * kValues / view.tiles.group != group) {
        group = unit * kValues / view.tiles.group;
        scale = scales_of_tokens(view, view.scales(), token, group);
        zero = scales_of_tokens(view, view.zeros(), token, group);
      }
      const Unit levels(words);
      const Simd::F s = scale, z = zero;
      float* const out = kt + unit * kValues * kTileTokens + token;
      if constexpr (Unit::kTabled) {
        const typename T::template Table<kBits> table(codes, Simd::set(1.0f), Simd::zero());
        store_unit<kBits>(out, [&](int i) { return Simd::fma(table.at(levels.index(i)), s, z); });
      } else {
        store_unit<kBits>(out, [&](int i) { return Simd::fma(levels.code(i, codes), s, z); });
      }
    });
  }
}

// Writes kt[d][token], with d up to whole units.
template <int kBits, bool kCodes>
void transpose_tile(const TileView& view, float* scratch, float* kt) {
  view.tiles.key_tokens > 0 ? transpose_columns<kBits, kCodes>(view, scratch, kt)
                            : transpose_tokens<kBits, kCodes>(view, kt);
}

// Returns true if values are looked up as bytes, 32 at a time, with an instruction for it.
template <int kBits, bool kCodes, typename T = LevelTables>
constexpr bool has_byte_table() {
  if constexpr (requires { typename T::ByteTable; }) return kCodes && kBits == 4;
  return false;
}

// Calls each(row, levels, scale, zero, dims) for the groups of tokens [begin, end). `stride`: floats from row to row.
template <int kBits, typename Each>
[[gnu::always_inline]] inline void for_groups(const TileView& view, int64_t begin, int64_t end, float* out,
                                              int64_t stride, const Each& each) {
  constexpr int64_t kAtOnce = 64;  // number of scales that are widened together
  const int64_t groups = view.groups(), group = view.tiles.group, last = view.dims - (groups - 1) * group;
  const int64_t group_bytes = group / affine_unit_values(kBits) * affine_unit_bytes(kBits), bytes = view.tiles.stride;
  const int64_t first = (view.first + begin) * groups, all = (end - begin) * groups;
  alignas(64) float scale[kAtOnce], zero[kAtOnce];
  const uint8_t* levels = view.levels(begin);
  float* row = out + begin * stride;
  const bool ahead = view.next_keys != nullptr;
  int64_t passed = 0;  // bytes of levels so far
  for (int64_t i = 0, g = 0; i < all; ++i) {
    const int64_t at = i % kAtOnce;
    if (at == 0) {
      const int64_t some = all - i < kAtOnce ? all - i : kAtOnce;
      widen_halves(view.scales() + 2 * (first + i), some, scale);
      widen_halves(view.zeros() + 2 * (first + i), some, zero);
    }
    const bool ends = g + 1 == groups;
    each(row + g * group, levels + g * group_bytes, Simd::set(scale[at]), Simd::set(zero[at]), ends ? last : group);
    g = ends ? 0 : g + 1;
    if (!ends) continue;
    levels += bytes;
    row += stride;
    for (int64_t line = 0; ahead && line < bytes; line += 64) {
      Simd::prefetch(view.next_keys + passed + line);
      Simd::prefetch(view.next_values + passed + line);
    }
    passed += bytes;
  }
}

// Decodes rows of tokens [begin, end). `stride`: floats from row to row, a multiple of 32. Each row is written up to
// whole units, or up to a multiple of 32 values.
template <int kBits, bool kCodes, typename T = LevelTables>
void decode_tile(const TileView& view, int64_t begin, int64_t end, float* out, int64_t stride) {
  const float* codes = value_codes_of(view.tiles);
  if constexpr (has_byte_table<kBits, kCodes, T>()) {  // after an odd unit, scales of the tile may follow
    using Table = typename T::ByteTable;
    const Table table(codes);
    return for_groups<kBits>(view, begin, end, out, stride,
                             [&](float* row, const uint8_t* levels, Simd::F scale, Simd::F zero, int64_t dims) {
                               for (int64_t d = 0; d < dims; d += Table::kValues, levels += Table::kBytes)
                                 table.decode(levels, scale, zero, row + d);
                             });
  }
  constexpr int kVectors = kUnitVectors<kBits>;
  for_groups<kBits>(
      view, begin, end, out, stride, [&](float* row, const uint8_t* levels, Simd::F scale, Simd::F zero, int64_t dims) {
        const ScaledUnits<kBits, kCodes> scaled(codes, scale, zero);
        for (int64_t d = 0; d < dims; d += affine_unit_values(kBits), levels += affine_unit_bytes(kBits)) {
          Simd::F value[kVectors];
          scaled.decode(levels, value);
          for (int v = 0; v < kVectors; ++v) Simd::store(row + d + v * Simd::kLanes, value[v]);
        }
      });
}

using TransposeTile = void (*)(const TileView& view, float* scratch, float* kt);
using DecodeTile = void (*)(const TileView& view, int64_t begin, int64_t end, float* out, int64_t stride);

inline TransposeTile transpose_of(const LevelTiles& t) {
  if (t.codes)
    return t.bits == 2 ? transpose_tile<2, true> : t.bits == 3 ? transpose_tile<3, true> : transpose_tile<4, true>;
  return t.bits == 2 ? transpose_tile<2, false> : t.bits == 3 ? transpose_tile<3, false> : transpose_tile<4, false>;
}

inline DecodeTile decode_of(const LevelTiles& t) {
  if (value_codes_of(t))
    return t.bits == 2 ? decode_tile<2, true> : t.bits == 3 ? decode_tile<3, true> : decode_tile<4, true>;
  return t.bits == 2 ? decode_tile<2, false> : t.bits == 3 ? decode_tile<3, false> : decode_tile<4, false>;
}

}  // namespace
}  // namespace millrace
