#include "kv/codecs/level_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kv/codecs/code_middles.h"
#include "kv/codecs/level_columns.h"
#include "tensor/half.h"

namespace millrace {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kOutlierBytes = 4;
constexpr int64_t kMaxUnitBytes = 16;  // of kColumns levels

uint64_t eight_levels(const uint8_t* levels) {
  uint64_t bytes;
  std::memcpy(&bytes, levels, sizeof(bytes));
  return bytes;
}

// A unit of AffineRows, of levels that are a byte each.
template <int kBits>
void pack_unit(const uint8_t* levels, uint8_t* unit) {
  uint64_t low = 0;
  if constexpr (kBits == 4) {
    low = eight_levels(levels) | eight_levels(levels + 8) << 4;
  } else {
    constexpr uint64_t kLowBits = 0x0303030303030303;
    for (int64_t i = 0; i < 4; ++i) low |= (eight_levels(levels + 8 * i) & kLowBits) << (2 * i);
  }
  std::memcpy(unit, &low, sizeof(low));
  if constexpr (kBits == 3) {
    // The product moves the lowest bit of byte i to bit 56 + i.
    for (int64_t i = 0; i < 4; ++i)
      unit[8 + i] = static_cast<uint8_t>(
          (eight_levels(levels + 8 * i) >> 2 & 0x0101010101010101) * uint64_t{0x0102040810204080} >> 56);
  }
}

// Calls of<bits>().
template <typename Of>
void with_bits(int bits, const Of& of) {
  if (bits == 2) return of.template operator()<2>();
  if (bits == 3) return of.template operator()<3>();
  of.template operator()<4>();
}

// The levels of one token; those behind the last one up to a whole unit are 0.
void pack_token(const uint8_t* levels, int bits, int64_t count, uint8_t* row) {
  with_bits(bits, [&]<int kBits>() {
    for (int64_t d = 0; d < count; d += affine_unit_values(kBits), row += affine_unit_bytes(kBits))
      pack_unit<kBits>(levels + d, row);
  });
}

// The room behind n values up to a whole unit (RowLevels).
void repeat_first(float* values, int64_t n) {
  std::fill(values + n, values + (n + kRowUnit - 1) / kRowUnit * kRowUnit, values[0]);
}

}  // namespace

Result<void> LevelCodec::check(int64_t head_dim) const {
  if (head_dim <= kMaxLevelGroup) return {};
  return Error::unsupported(
      fmt::format("KV format {}: heads have at most {} dims, the model has {}; choose q8_0 or another format of rows",
                  text(), kMaxLevelGroup, head_dim));
}

// Channels of a group; of a whole head up to whole units. Layers in another group of blocks have heads of no dims.
int64_t LevelCodec::group_of(int64_t head_dim) const {
  return shape_.group > 0 ? shape_.group : std::max<int64_t>(1, (head_dim + 31) / 32) * 32;
}

// Most heads are one group, and most blocks one column: every token asks, and a division takes as long as a few values.
int64_t LevelCodec::groups(int64_t head_dim) const {
  const int64_t wide = group_of(head_dim);
  return head_dim <= wide ? 1 : (head_dim + wide - 1) / wide;
}

// Of keys or of values, whichever has more.
int64_t LevelCodec::scales(int64_t tokens, int64_t head_dim) const {
  const int64_t tall = shape_.key_tokens;
  const int64_t columns = tall == 0 ? 0 : tokens == tall ? head_dim : tokens / tall * head_dim;
  return std::max(columns, tokens * groups(head_dim));
}

std::optional<LevelTiles> LevelCodec::level_tiles(int64_t tokens, int64_t head_dim) const {
  return tiles_of(tokens, head_dim);
}

LevelTiles LevelCodec::tiles_of(int64_t tokens, int64_t head_dim) const {
  LevelTiles tiles{.bits = shape_.bits, .codes = codes(KvPart::keys), .value_codes = codes(KvPart::values)};
  tiles.stride = affine_row_bytes(shape_.bits, head_dim);
  tiles.scales_at = tokens * tiles.stride;
  tiles.zeros_at = tiles.scales_at + 2 * scales(tokens, head_dim);
  tiles.key_tokens = shape_.key_tokens;
  tiles.group = group_of(head_dim);
  tiles.outliers = shape_.outliers;
  tiles.outliers_at = tiles.zeros_at + 2 * scales(tokens, head_dim);
  return tiles;
}

int64_t LevelCodec::tile_bytes(int64_t tokens, int64_t head_dim) const {
  const int64_t levels = tokens * affine_row_bytes(shape_.bits, head_dim);
  const int64_t each = 4 + shape_.outliers * kOutlierBytes;
  return (levels + each * scales(tokens, head_dim) + kLine - 1) / kLine * kLine;
}

// Of the group whose scale is number `first`.
LevelCodec::GroupPlace LevelCodec::place_of(KvPart part, const LevelTiles& tiles, int64_t first, uint8_t* tile) const {
  return {part, tile + tiles.scales_at + 2 * first, tile + tiles.zeros_at + 2 * first,
          tile + tiles.outliers_at + first * shape_.outliers * kOutlierBytes};
}

// What is not written in a tile of `used` groups.
void LevelCodec::clear_unused(int64_t used, int64_t tokens, int64_t head_dim, uint8_t* tile) const {
  const LevelTiles tiles = tiles_of(tokens, head_dim);
  const int64_t all = scales(tokens, head_dim);
  const GroupPlace end = place_of(KvPart::values, tiles, used, tile);
  std::memset(end.scale, 0, static_cast<size_t>(2 * (all - used)));
  std::memset(end.zero, 0, static_cast<size_t>(2 * (all - used)));
  std::memset(end.outliers, 0, static_cast<size_t>(tile + tile_bytes(tokens, head_dim) - end.outliers));
}

void LevelCodec::store(KvPart part, const float* rows, int64_t tokens, int64_t head_dim, uint8_t* tile) const {
  if (by_token(part)) {
    for (int64_t t = 0; t < tokens; ++t) store_token(part, rows + t * head_dim, t, tokens, head_dim, tile);
    return;
  }
  const LevelTiles tiles = tiles_of(tokens, head_dim);
  clear_unused(tokens / tiles.key_tokens * head_dim, tokens, head_dim, tile);
  GroupPlace at = place_of(part, tiles, 0, tile);
  for (int64_t t = 0; t < tokens; t += tiles.key_tokens)
    store_columns(rows + t * head_dim, head_dim, tile + t * tiles.stride, tiles.stride, at);
}

// Outliers, scale and zero go to the place of the group, and the place to that of the next.
void LevelCodec::fit_group(float* values, int64_t n, uint8_t* levels, GroupPlace& at) const {
  shape_.outliers == 1 ? take_outlier(values, n, at.outliers) : store_outliers(values, n, at.outliers);
  repeat_first(values, n);
  FittedGroup fitted{.levels = levels};
  fit(at.part, values, n, fitted);
  std::memcpy(at.scale, &fitted.scale, 2);
  std::memcpy(at.zero, &fitted.zero, 2);
  at.scale += 2;
  at.zero += 2;
  at.outliers += shape_.outliers * kOutlierBytes;
}

void LevelCodec::store_token(KvPart part, const float* row, int64_t token, int64_t tokens, int64_t head_dim,
                             uint8_t* tile) const {
  if (token == 0) clear_unused(tokens * groups(head_dim), tokens, head_dim, tile);
  const LevelTiles tiles = tiles_of(tokens, head_dim);
  GroupPlace at = place_of(part, tiles, token * groups(head_dim), tile);
  std::array<float, kMaxLevelGroup> values;
  std::array<uint8_t, kMaxLevelGroup + kRowUnit> levels;
  for (int64_t d = 0; d < head_dim; d += tiles.group) {
    const int64_t n = std::min(tiles.group, head_dim - d);
    std::copy_n(row + d, n, values.data());
    fit_group(values.data(), n, levels.data() + d, at);
  }
  std::memset(levels.data() + head_dim, 0, kRowUnit);
  pack_token(levels.data(), shape_.bits, head_dim, tile + token * tiles.stride);
}

void LevelCodec::move_token(KvPart /*part*/, const uint8_t* from, int64_t token, uint8_t* to, int64_t place,
                            int64_t tokens, int64_t head_dim) const {
  const LevelTiles tiles = tiles_of(tokens, head_dim);
  const auto move = [&](int64_t at, int64_t bytes) {
    std::memmove(to + at + place * bytes, from + at + token * bytes, static_cast<size_t>(bytes));
  };
  move(0, tiles.stride);
  move(tiles.scales_at, 2 * groups(head_dim));
  move(tiles.zeros_at, 2 * groups(head_dim));
  move(tiles.outliers_at, shape_.outliers * kOutlierBytes * groups(head_dim));
}

void LevelCodec::fit_columns(LevelColumns& columns) const {
  std::array<float, kMaxKeyTokens> values;
  std::array<uint8_t, kMaxKeyTokens> levels;
  std::array<std::array<uint8_t, kColumns>, kMaxKeyTokens> all;
  for (int64_t c = 0; c < kColumns; ++c) {
    columns.read(c, values.data());
    FittedGroup fitted{.levels = levels.data()};
    fit(KvPart::keys, values.data(), columns.tokens, fitted);
    columns.set_grid(c, fitted.scale, fitted.zero);
    for (size_t t = 0; t < static_cast<size_t>(columns.tokens); ++t) all[t][static_cast<size_t>(c)] = levels[t];
  }
  for (int64_t t = 0; t < columns.tokens; ++t)
    pack_token(all[static_cast<size_t>(t)].data(), shape_.bits, kColumns, columns.out + t * columns.out_stride);
}

// Fewer than kColumns of columns: what else their units have becomes 0.
void LevelCodec::fit_few_columns(LevelColumns& columns, int64_t count) const {
  std::array<uint8_t, kColumns> all{};
  std::fill_n(all.data(), count, uint8_t{0xf});
  std::array<uint8_t, kMaxUnitBytes> used, units[kMaxKeyTokens];
  pack_token(all.data(), shape_.bits, kColumns, used.data());
  uint8_t* out = std::exchange(columns.out, units[0].data());
  const int64_t apart = std::exchange(columns.out_stride, kMaxUnitBytes);
  fit_columns(columns);
  const auto bytes = static_cast<size_t>(affine_row_bytes(shape_.bits, count));
  for (int64_t t = 0; t < columns.tokens; ++t, out += apart)
    for (size_t i = 0; i < bytes; ++i) out[i] = units[t][i] & used[i];
}

// Of key_tokens rows; the place goes to that of the next.
void LevelCodec::store_columns(const float* rows, int64_t head_dim, uint8_t* out, int64_t stride,
                               GroupPlace& at) const {
  std::array<float, kMaxKeyTokens> values;
  LevelColumns columns;
  columns.tokens = shape_.key_tokens;
  columns.bits = shape_.bits;
  for (int64_t first = 0; first < head_dim; first += kColumns) {
    const int64_t count = std::min(kColumns, head_dim - first);
    columns.load(rows + first, head_dim, count, shape_.outliers > 1);
    if (shape_.outliers == 1) columns.take_outliers(count, at.outliers);
    if (shape_.outliers > 1) {
      for (int64_t c = 0; c < count; ++c) {
        columns.read(c, values.data());
        store_outliers(values.data(), columns.tokens, at.outliers + c * shape_.outliers * kOutlierBytes);
        columns.write(c, values.data());
      }
    }
    columns.out = out;
    columns.out_stride = stride;
    count < kColumns ? fit_few_columns(columns, count) : fit_columns(columns);
    std::memcpy(at.scale, columns.step_bits, static_cast<size_t>(2 * count));
    std::memcpy(at.zero, columns.zero_bits, static_cast<size_t>(2 * count));
    at.scale += 2 * count;
    at.zero += 2 * count;
    at.outliers += count * shape_.outliers * kOutlierBytes;
    out += affine_row_bytes(shape_.bits, kColumns);
  }
}

void LevelCodec::load(KvPart part, const KernelTable& kernels, const uint8_t* tile, int64_t tokens, int64_t head_dim,
                      uint8_t* rows) const {
  const LevelTiles tiles = tiles_of(tokens, head_dim);
  AffineRows a{.bits = shape_.bits, .codes = codes(part), .rows = tokens, .cols = head_dim, .levels = tile};
  a.stride = tiles.stride;
  a.scales = tile + tiles.scales_at;
  a.zeros = tile + tiles.zeros_at;
  a.out = rows;
  if (part == KvPart::values || tiles.key_tokens == 0) {
    a.group = tiles.group;
    kernels.decode_affine(a);
    return load_outliers(part, tile, tokens, head_dim, rows);
  }
  a.rows = tiles.key_tokens;
  for (int64_t t = 0; t < tokens; t += a.rows) {
    kernels.decode_affine(a);
    a.levels += a.rows * a.stride;
    a.scales += 2 * head_dim;
    a.zeros += 2 * head_dim;
    a.out += 2 * a.rows * head_dim;
  }
  load_outliers(part, tile, tokens, head_dim, rows);
}

// Stores the value farthest from the median, and puts its neighbour in its place.
void LevelCodec::take_outlier(float* values, int64_t n, uint8_t* to) const {
  repeat_first(values, n);
  RowLevels row = row_of(values, n, {});
  column_level_kernels().row.range(row);
  column_level_kernels().row.farthest(row);
  float& value = values[row.place];
  const auto place = static_cast<uint16_t>(row.place);
  const uint16_t half = f32_to_f16(value);
  std::memcpy(to, &place, 2);
  std::memcpy(to + 2, &half, 2);
  value = values[row.place > 0 ? row.place - 1 : std::min<int64_t>(1, n - 1)];
}

// Stores the values farthest from the median, and puts the median in their places.
void LevelCodec::store_outliers(float* values, int64_t n, uint8_t* to) const {
  if (shape_.outliers == 0) return;
  std::array<float, kMaxLevelGroup> sorted;
  std::copy_n(values, n, sorted.data());
  std::nth_element(sorted.data(), sorted.data() + n / 2, sorted.data() + n);
  const float median = sorted[static_cast<size_t>(n / 2)];
  for (int i = 0; i < shape_.outliers; ++i, to += kOutlierBytes) {
    int64_t far = 0;
    for (int64_t j = 1; j < n; ++j)
      if (std::fabs(values[j] - median) > std::fabs(values[far] - median)) far = j;
    const auto place = static_cast<uint16_t>(far);
    const uint16_t half = f32_to_f16(values[far]);
    std::memcpy(to, &place, 2);
    std::memcpy(to + 2, &half, 2);
    values[far] = median;
  }
}

// Backwards, so that of a place that was stored twice, its median later, the value is left.
void LevelCodec::load_outliers(KvPart part, const uint8_t* tile, int64_t tokens, int64_t head_dim,
                               uint8_t* rows) const {
  if (shape_.outliers == 0) return;
  const LevelTiles tiles = tiles_of(tokens, head_dim);
  const bool columns = part == KvPart::keys && tiles.key_tokens > 0;
  const int64_t across = columns ? head_dim : groups(head_dim), wide = columns ? 1 : tiles.group;
  const int64_t tall = columns ? tiles.key_tokens : 1, step = columns ? head_dim : 1;  // between places
  const uint8_t* from = tile + tiles.outliers_at;
  for (int64_t row = 0; row < tokens; row += tall) {
    for (int64_t v = 0; v < across; ++v, from += shape_.outliers * kOutlierBytes) {
      uint8_t* first = rows + 2 * (row * head_dim + v * wide);
      const int64_t last = (columns ? tall : std::min(wide, head_dim - v * wide)) - 1;
      for (int i = shape_.outliers - 1; i >= 0; --i) {
        uint16_t place;
        std::memcpy(&place, from + i * kOutlierBytes, 2);
        // A tile may come from a file.
        std::memcpy(first + 2 * std::min<int64_t>(place, last) * step, from + i * kOutlierBytes + 2, 2);
      }
    }
  }
}

void LevelCodec::fit_codes(KvPart part, const float* values, int64_t n, FittedGroup& out) const {
  RowLevels row = row_of(values, n, out);
  row.zero = f16_to_f32(out.zero);
  const float scale = f16_to_f32(out.scale);
  row.inverse = scale > 0 ? 1.0f / scale : 0.0f;
  fit_codes(part, row);
}

void LevelCodec::fit_codes(KvPart part, RowLevels& row) const {
  const CodeMiddles middles(shape_.bits, codes(part));
  const RowLevelKernels& kernels = column_level_kernels().row;
  middles.symmetric ? kernels.symmetric_levels(row, middles.upper()) : kernels.code_levels(row, middles.all.data());
}

RowLevels LevelCodec::row_of(const float* values, int64_t n, const FittedGroup& out) const {
  return {.values = values, .count = n, .bits = shape_.bits, .levels = out.levels};
}

// The scale is rounded to f16, and down where the highest level would be infinite.
void MinMaxCodec::set_grid(float low, float high, uint16_t& scale, uint16_t& zero) const {
  low *= clip_;
  high *= clip_;
  zero = f32_to_f16(low);
  scale = f32_to_f16((high - low) / top());
  if (low + top() * f16_to_f32(scale) > kLargestF16Value) --scale;
}

void MinMaxCodec::fit_columns(LevelColumns& columns) const {
  column_level_kernels().ranges(columns);
  if (!column_level_kernels().grids_from_low(columns, clip_, top())) {
    for (int64_t c = 0; c < kColumns; ++c) {
      uint16_t step, zero;
      set_grid(columns.low[c], columns.high[c], step, zero);
      columns.set_grid(c, step, zero);
    }
  }
  column_level_kernels().whole_levels(columns);
}

void MinMaxCodec::fit(KvPart /*part*/, const float* values, int64_t n, FittedGroup& out) const {
  const RowLevelKernels& kernels = column_level_kernels().row;
  RowLevels row = row_of(values, n, out);
  kernels.range(row);
  if (!kernels.grid_from_low(row, clip_, top())) {
    set_grid(row.low, row.high, row.step_bits, row.zero_bits);
    row.inverse = 1.0f / f16_to_f32(row.step_bits);
  }
  out.scale = row.step_bits;
  out.zero = row.zero_bits;
  kernels.whole_levels(row);
}

}  // namespace millrace
