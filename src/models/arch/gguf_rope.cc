#include "models/arch/gguf_rope.h"

#include <fmt/format.h>

#include <cmath>

#include "models/arch/common.h"

namespace millrace {
namespace {

using Scaling = RopeSpec::Scaling;

// Stored per-frequency divisors, as floats.
std::vector<float> read_factors(const ModelFiles& files, std::string_view name) {
  const StoredTensor* stored = files.find(name);
  if (!stored || !stored->tensor.format || stored->tensor.values() > kMaxWidth) return {};
  std::vector<float> out(static_cast<size_t>(stored->tensor.values()));
  stored->tensor.format->decode(stored->tensor.data, out.data(), stored->tensor.values());
  return out;
}

Scaling read_scaling_type(ConfigReader& meta, double factor) {
  const std::string type = meta.text_or("rope.scaling.type", factor != 1.0 ? "linear" : "none");
  if (type == "linear") return Scaling::linear;
  if (type == "yarn") return Scaling::yarn;
  if (type == "longrope") return Scaling::longrope;
  if (type != "none" && !type.empty())
    meta.fail(Error::unsupported(fmt::format("{}: rope scaling '{}'", meta.source(), type)));
  return Scaling::none;
}

// llama.cpp mixes the two frequencies of YaRN by this factor; -1 means the type's own.
void check_ext_factor(ConfigReader& meta, Scaling scaling) {
  constexpr const char* kKey = "rope.scaling.yarn_ext_factor";
  const double own = scaling == Scaling::yarn ? 1.0 : 0.0;
  const double stored = meta.number_or(kKey, own);
  if (stored != own && stored != -1.0)
    meta.fail(Error::unsupported(fmt::format("{}: {} of {}: changes the rotation of positions and is not supported",
                                             meta.source(), kKey, stored)));
}

}  // namespace

double yarn_mscale(double factor, double multiplier) {
  return factor > 1.0 ? 0.1 * multiplier * std::log(factor) + 1.0 : 1.0;
}

GgufRope read_gguf_rope(ConfigReader& meta, int64_t rotated, int64_t context, YarnLogUnit unit) {
  GgufRope out;
  RopeSpec& rope = out.rope;
  rope.rotated = meta.count_or("rope.dimension_count", rotated, 0, kMaxWidth);
  rope.theta = meta.number_or("rope.freq_base", 10000.0);
  rope.factor = meta.number_or("rope.scaling.factor", meta.number_or("rope.scale_linear", 1.0));
  if (rope.factor == 0.0) rope.factor = 1.0;  // some writers store 0 for no scaling
  rope.original_context = meta.count_or("rope.scaling.original_context_length", context, 0, kMaxContext);
  if (rope.original_context == 0) rope.original_context = context;
  rope.attention_factor = meta.number_or("rope.scaling.attn_factor", 0.0);
  rope.beta_fast = meta.number_or("rope.scaling.yarn_beta_fast", rope.beta_fast);
  rope.beta_slow = meta.number_or("rope.scaling.yarn_beta_slow", rope.beta_slow);
  rope.scaling = read_scaling_type(meta, rope.factor);
  check_ext_factor(meta, rope.scaling);
  const double multiplier = meta.number_or("rope.scaling.yarn_log_multiplier", 0.0);
  if (rope.scaling != Scaling::yarn) return out;
  const double own = yarn_mscale(rope.factor, 1.0);
  // GGUF's factor multiplies the method's own; Hugging Face's replaces it.
  if (rope.attention_factor > 0.0) rope.attention_factor *= own;
  if (multiplier == 0.0) return out;
  out.mscale_all_dim = unit == YarnLogUnit::tenth ? 10.0 * multiplier : multiplier;
  // The file does not state mscale. llama.cpp takes 1 for it; in DeepSeek's files it equals mscale_all_dim, so that the
  // factors of cos and sin cancel.
  const double base = rope.attention_factor > 0.0 ? rope.attention_factor : own;
  rope.attention_factor = base / (unit == YarnLogUnit::tenth ? own : yarn_mscale(rope.factor, out.mscale_all_dim));
  return out;
}

void read_gguf_rope_tensors(const ModelFiles& files, RopeSpec& rope) {
  rope.long_factors = read_factors(files, "rope_freqs.weight");
  if (auto factors = read_factors(files, "rope_factors_long.weight"); !factors.empty()) {
    rope.scaling = Scaling::longrope;
    rope.long_factors = std::move(factors);
    rope.short_factors = read_factors(files, "rope_factors_short.weight");
  }
}

}  // namespace millrace
