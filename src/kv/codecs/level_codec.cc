#include "kv/codecs/level_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensor/half.h"

namespace millrace {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kOutlierBytes = 4;

void put_level(uint8_t* row, int bits, int64_t channel, int level) {
  const int64_t values = affine_unit_values(bits), within = channel % values;
  uint8_t* unit = row + channel / values * affine_unit_bytes(bits);
  const int low_bits = bits == 4 ? 4 : 2;
  unit[within % 8] |= static_cast<uint8_t>((level & ((1 << low_bits) - 1)) << (within / 8 * low_bits));
  if (bits == 3) unit[8 + within / 8] |= static_cast<uint8_t>(level >> 2 << (within % 8));
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

int64_t LevelCodec::groups(int64_t head_dim) const { return (head_dim + group_of(head_dim) - 1) / group_of(head_dim); }

// Of keys or of values, whichever has more.
int64_t LevelCodec::scales(int64_t tokens, int64_t head_dim) const {
  const int64_t columns = shape_.key_tokens > 0 ? tokens / shape_.key_tokens * head_dim : 0;
  return std::max(columns, tokens * groups(head_dim));
}

std::optional<LevelTiles> LevelCodec::level_tiles(int64_t tokens, int64_t head_dim) const {
  if (shape_.outliers > 0) return {};
  return tiles_of(tokens, head_dim);
}

LevelTiles LevelCodec::tiles_of(int64_t tokens, int64_t head_dim) const {
  LevelTiles tiles{.bits = shape_.bits, .codes = shape_.codes};
  tiles.stride = affine_row_bytes(shape_.bits, head_dim);
  tiles.scales_at = tokens * tiles.stride;
  tiles.zeros_at = tiles.scales_at + 2 * scales(tokens, head_dim);
  tiles.key_tokens = shape_.key_tokens;
  tiles.group = group_of(head_dim);
  return tiles;
}

int64_t LevelCodec::tile_bytes(int64_t tokens, int64_t head_dim) const {
  const int64_t levels = tokens * affine_row_bytes(shape_.bits, head_dim);
  const int64_t each = 4 + shape_.outliers * kOutlierBytes;
  return (levels + each * scales(tokens, head_dim) + kLine - 1) / kLine * kLine;
}

void LevelCodec::store(KvPart part, const float* rows, int64_t tokens, int64_t head_dim, uint8_t* tile) const {
  std::memset(tile, 0, static_cast<size_t>(tile_bytes(tokens, head_dim)));
  const LevelTiles tiles = tiles_of(tokens, head_dim);
  const bool columns = part == KvPart::keys && tiles.key_tokens > 0;
  const int64_t tall = columns ? tiles.key_tokens : 1, wide = columns ? 1 : tiles.group;
  uint8_t *scale = tile + tiles.scales_at, *zero = tile + tiles.zeros_at;
  uint8_t* outliers = tile + tiles.zeros_at + 2 * scales(tokens, head_dim);
  std::array<float, kMaxLevelGroup> values;
  FittedGroup fitted;
  for (int64_t t = 0; t < tokens; t += tall) {
    for (int64_t d = 0; d < head_dim; d += wide, scale += 2, zero += 2) {
      const int64_t n = columns ? tall : std::min(wide, head_dim - d), step = columns ? head_dim : 1;
      const float* first = rows + t * head_dim + d;
      for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i)] = first[i * step];
      store_outliers(values.data(), n, outliers);
      outliers += shape_.outliers * kOutlierBytes;
      fit(part, values.data(), n, fitted);
      std::memcpy(scale, &fitted.scale, 2);
      std::memcpy(zero, &fitted.zero, 2);
      for (int64_t i = 0; i < n; ++i)
        put_level(tile + (columns ? t + i : t) * tiles.stride, shape_.bits, columns ? d : d + i,
                  fitted.levels[static_cast<size_t>(i)]);
    }
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
  const uint8_t* from = tile + tiles.zeros_at + 2 * scales(tokens, head_dim);
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
  const float* code = codes(part);
  const int count = 1 << shape_.bits;
  const float zero = f16_to_f32(out.zero), scale = f16_to_f32(out.scale), inverse = scale > 0 ? 1.0f / scale : 0.0f;
  std::array<float, 16> between{};
  for (int i = 0; i + 1 < count; ++i) between[static_cast<size_t>(i)] = (code[i] + code[i + 1]) / 2;
  for (int64_t i = 0; i < n; ++i) {
    const float x = (values[i] - zero) * inverse;
    int level = 0;
    for (int j = 0; j + 1 < count; ++j) level += x > between[static_cast<size_t>(j)];
    out.levels[static_cast<size_t>(i)] = static_cast<uint8_t>(level);
  }
}

// The scale is rounded to f16, and down where the highest level would be infinite.
void MinMaxCodec::fit(KvPart /*part*/, const float* values, int64_t n, FittedGroup& out) const {
  const auto [lowest, highest] = std::minmax_element(values, values + n);
  const float low = *lowest * clip_, high = *highest * clip_;
  const auto top = static_cast<float>((1 << shape().bits) - 1);
  out.zero = f32_to_f16(low);
  out.scale = f32_to_f16((high - low) / top);
  if (low + top * f16_to_f32(out.scale) > kLargestF16Value) --out.scale;
  const float zero = f16_to_f32(out.zero), scale = f16_to_f32(out.scale);
  const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
  for (int64_t i = 0; i < n; ++i) {
    const float level = (values[i] - zero) * inverse + 0.5f;
    out.levels[static_cast<size_t>(i)] = static_cast<uint8_t>(std::clamp(level, 0.0f, top));
  }
}

}  // namespace millrace
