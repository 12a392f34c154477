#include "kv/codecs/kvquant.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kv/codecs/factories.h"
#include "kv/codecs/level_columns.h"
#include "tensor/half.h"

namespace millrace {
namespace {

LevelShape level_shape(const KvQuantShape& shape) {
  return {.bits = shape.bits, .key_tokens = shape.group, .outliers = shape.outliers};
}

void set_grid(float low, float high, uint16_t& scale, uint16_t& zero) {
  zero = f32_to_f16((low + high) / 2);
  scale = f32_to_f16((high - low) / 2);
  // Down where the rounded sum of both would be infinite.
  while (std::fabs(f16_to_f32(zero)) + f16_to_f32(scale) > kLargestF16Value) --scale;
}

}  // namespace

KvQuant::KvQuant(const KvQuantShape& shape, const KvQuantCodes& codes)
    : LevelCodec(level_shape(shape)), shape_(shape), codes_(codes) {}

KvQuant::KvQuant(const KvQuantShape& shape, KvQuantLevels levels)
    : KvQuant(shape, KvQuantCodes{unit_codes(shape.bits), unit_codes(shape.bits)}) {
  digest_ = levels.digest();
  for (const KvQuantCodes& codes : levels.layers) layers_.push_back(KvQuant(shape, codes));
}

std::string KvQuant::text() const {
  return fmt::format("kvquant:bits={},group={},outliers={},sink={},residual={}{}{}", shape_.bits, shape_.group,
                     shape_.outliers, shape_.sink, shape_.residual, digest_.empty() ? "" : ",levels=", digest_);
}

Result<void> KvQuant::check_layers(int64_t layers) const {
  if (layers_.empty() || std::ssize(layers_) == layers) return {};
  return Error::user(fmt::format(
      "KV format kvquant: the levels are of {} layers, the model has {}; run millrace kv-levels on this model",
      layers_.size(), layers));
}

const KvCodec& KvQuant::layer(int64_t index) const {
  return layers_.empty() ? *this : layers_[static_cast<size_t>(index)];
}

std::optional<LevelTiles> KvQuant::level_tiles(int64_t tokens, int64_t head_dim) const {
  auto tiles = LevelCodec::level_tiles(tokens, head_dim);
  tiles->sink_tokens = shape_.sink;
  tiles->sink_at = sink_at(tokens, head_dim);
  return tiles;
}

void KvQuant::fit(KvPart part, const float* values, int64_t n, FittedGroup& out) const {
  const RowLevelKernels& kernels = column_level_kernels().row;
  RowLevels row = row_of(values, n, out);
  kernels.range(row);
  if (!kernels.grid_from_middle(row)) {
    set_grid(row.low, row.high, row.step_bits, row.zero_bits);
    row.inverse = 1.0f / f16_to_f32(row.step_bits);
  }
  out.scale = row.step_bits;
  out.zero = row.zero_bits;
  fit_codes(part, row);
}

void KvQuant::fit_columns(LevelColumns& columns) const {
  column_level_kernels().ranges(columns);
  if (!column_level_kernels().grids_from_middle(columns)) {
    for (int64_t c = 0; c < kColumns; ++c) {
      uint16_t step, zero;
      set_grid(columns.low[c], columns.high[c], step, zero);
      columns.set_grid(c, step, zero);
    }
  }
  columns.fit_codes(codes_.keys.data());
}

Result<std::shared_ptr<const KvCodec>> make_kvquant(const OptionValues& options) {
  KvQuantShape shape{.bits = static_cast<int>(options.integer("bits")),
                     .group = options.integer("group"),
                     .outliers = static_cast<int>(options.integer("outliers")),
                     .sink = options.integer("sink"),
                     .residual = options.integer("residual")};
  if (shape.group != 32 && shape.group != 64 && shape.group != 128)
    return Error::user(fmt::format("group: must be 32, 64 or 128, got {}", shape.group));
  KvQuantLevels levels;
  if (const std::string& path = options.text("levels"); !path.empty()) {
    MILLRACE_TRY(levels, read_kvquant_levels(path));
    if (options.given("bits") && levels.bits != shape.bits)
      return Error::user(fmt::format("bits: {} has levels of {} bits, got {}", path, levels.bits, shape.bits));
    shape.bits = levels.bits;
  }
  return std::shared_ptr<const KvCodec>(std::make_shared<KvQuant>(shape, std::move(levels)));
}

}  // namespace millrace
