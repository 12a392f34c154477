// KVQuant (Hooper et al., 2024, "KVQuant: Towards 10 Million Context Length LLM Inference with KV Cache Quantization"):
// keys are rounded per channel, before RoPE, which would mix channels; values per token. Levels are not evenly spaced
// (nuq). The outliers of each vector, a channel of keys or a token of values, are kept apart as f16 (dense and sparse),
// and so is the first token, to which much of attention goes.
//
// Levels are those that are optimal for normal values, stretched to what is left of a vector without its outliers; the
// paper fits them, and the channels' ranges, to a calibration text before. Ranges here are those of the block itself.
//
//   tile   as LevelCodec, with outliers | rows of the first tokens, f16 [sink][head_dim], used in a stream's first
//   block
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kv/codecs/factories.h"
#include "kv/codecs/level_codec.h"
#include "kv/codecs/normal_codes.h"
#include "tensor/half.h"

namespace millrace {
namespace {

class KvQuant final : public LevelCodec {
 public:
  KvQuant(const LevelShape& shape, int64_t sink, int64_t residual)
      : LevelCodec(shape), sink_(sink), residual_(residual) {}
  std::string text() const override {
    return fmt::format("kvquant:bits={},group={},outliers={},sink={},residual={}", shape().bits, shape().key_tokens,
                       shape().outliers, sink_, residual_);
  }
  int64_t residual() const override { return residual_; }
  bool before_rope() const override { return true; }
  int64_t sink_tokens() const override { return sink_; }
  int64_t sink_at(int64_t tokens, int64_t head_dim) const override { return LevelCodec::tile_bytes(tokens, head_dim); }
  int64_t tile_bytes(int64_t tokens, int64_t head_dim) const override {
    return sink_at(tokens, head_dim) + (2 * sink_ * head_dim + 63) / 64 * 64;
  }

 protected:
  // Codes are within -1 and 1: the scale is half the range, the zero its middle.
  void fit(const float* values, int64_t n, FittedGroup& out) const override {
    const auto [lowest, highest] = std::minmax_element(values, values + n);
    out.zero = f32_to_f16((*lowest + *highest) / 2);
    out.scale = f32_to_f16((*highest - *lowest) / 2);
    const float zero = f16_to_f32(out.zero);
    // Down where the rounded sum of both would be infinite.
    while (std::fabs(zero) + f16_to_f32(out.scale) > kLargestF16Value) --out.scale;
    fit_codes(values, n, out);
  }

 private:
  int64_t sink_, residual_;
};

}  // namespace

Result<std::shared_ptr<const KvCodec>> make_kvquant(const OptionValues& options) {
  const auto bits = static_cast<int>(options.integer("bits"));
  const int64_t group = options.integer("group");
  if (group != 32 && group != 64 && group != 128)
    return Error::user(fmt::format("group: must be 32, 64 or 128, got {}", group));
  const LevelShape shape{.bits = bits,
                         .key_tokens = group,
                         .codes = unit_codes(bits).data(),
                         .outliers = static_cast<int>(options.integer("outliers"))};
  return std::shared_ptr<const KvCodec>(
      std::make_shared<KvQuant>(shape, options.integer("sink"), options.integer("residual")));
}

}  // namespace millrace
