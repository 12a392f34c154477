// KVQuant (Hooper et al., 2024, "KVQuant: Towards 10 Million Context Length LLM Inference with KV Cache Quantization"):
// keys are rounded per channel, before RoPE, which would mix channels; values per token. Levels are not evenly spaced
// (nuq). The outliers of each vector, a channel of keys or a token of values, are stored separately as f16 (dense and
// sparse). So is the first token, which receives much of the attention.
//
// The levels of keys and of values in each layer are read from a file, which a fit to a text wrote
// (evaluate/kvquant_fit.h), or are those that are optimal for normal values. They are stretched to the range of a
// vector without its outliers. The paper also fits the ranges of channels to the text beforehand; here they are the
// ranges of the block itself.
//
//   tile   as LevelCodec, with outliers | rows of the first tokens, f16 [sink][head_dim], used in a stream's first
//   block
#pragma once

#include <vector>

#include "kv/codecs/kvquant_levels.h"
#include "kv/codecs/level_codec.h"

namespace millrace {

struct KvQuantShape {
  int bits = 3;
  int64_t group = 64;  // tokens of a channel of keys under one scale
  int outliers = 1;
  int64_t sink = 1, residual = 0;
};

class KvQuant : public LevelCodec {
 public:
  explicit KvQuant(const KvQuantShape& shape, KvQuantLevels levels = {});

  std::string text() const override;
  int64_t residual() const override { return shape_.residual; }
  bool before_rope() const override { return true; }
  int64_t sink_tokens() const override { return shape_.sink; }
  int64_t sink_at(int64_t tokens, int64_t head_dim) const override { return LevelCodec::tile_bytes(tokens, head_dim); }
  int64_t tile_bytes(int64_t tokens, int64_t head_dim) const override {
    return sink_at(tokens, head_dim) + (2 * shape_.sink * head_dim + 63) / 64 * 64;
  }
  Result<void> check_layers(int64_t layers) const override;
  const KvCodec& layer(int64_t index) const override;
  std::optional<LevelTiles> level_tiles(int64_t tokens, int64_t head_dim) const override;

 protected:
  // Codes are within -1 and 1: the scale is half the range, the zero its middle.
  void fit(KvPart part, const float* values, int64_t n, FittedGroup& out) const override;
  void fit_columns(LevelColumns& columns) const override;
  const float* codes(KvPart part) const override {
    return part == KvPart::keys ? codes_.keys.data() : codes_.values.data();
  }

 private:
  KvQuant(const KvQuantShape& shape, const KvQuantCodes& codes);

  KvQuantShape shape_;
  KvQuantCodes codes_;
  std::string digest_;           // digest of the levels; empty: levels for normal values
  std::vector<KvQuant> layers_;  // each with separate levels
};

}  // namespace millrace
