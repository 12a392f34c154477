#include "models/arch/common.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/arch/rope_fields.h"

namespace millrace {
namespace {

// Stored per-frequency divisors (rope_freqs, rope_factors_long / _short), as floats.
std::vector<float> read_factors(const ModelFiles& files, std::string_view name) {
  const StoredTensor* stored = files.find(name);
  if (!stored || !stored->tensor.format || stored->tensor.values() > kMaxWidth) return {};
  std::vector<float> out(static_cast<size_t>(stored->tensor.values()));
  stored->tensor.format->decode(stored->tensor.data, out.data(), stored->tensor.values());
  return out;
}

void read_gguf_rope(ConfigReader& meta, ArchSpec& spec, const ModelFiles& files) {
  RopeSpec rope;
  rope.rotated = meta.count_or("rope.dimension_count", spec.head_dim, 0, kMaxWidth);
  rope.theta = meta.number_or("rope.freq_base", 10000.0);
  rope.factor = meta.number_or("rope.scaling.factor", meta.number_or("rope.scale_linear", 1.0));
  if (rope.factor == 0.0) rope.factor = 1.0;  // some writers store 0 for no scaling
  rope.original_context = meta.count_or("rope.scaling.original_context_length", spec.context, 0, kMaxContext);
  rope.attention_factor = meta.number_or("rope.scaling.attn_factor", 0.0);
  rope.beta_fast = meta.number_or("rope.scaling.yarn_beta_fast", rope.beta_fast);
  rope.beta_slow = meta.number_or("rope.scaling.yarn_beta_slow", rope.beta_slow);
  std::string scaling = meta.text_or("rope.scaling.type", rope.factor != 1.0 ? "linear" : "none");
  if (scaling == "linear") {
    rope.scaling = RopeSpec::Scaling::linear;
  } else if (scaling == "yarn") {
    rope.scaling = RopeSpec::Scaling::yarn;
    // GGUF's factor multiplies the method's own 1 + 0.1 ln(factor); Hugging Face's replaces it.
    if (rope.attention_factor > 0.0 && rope.factor > 1.0) rope.attention_factor *= 0.1 * std::log(rope.factor) + 1.0;
  } else if (scaling == "longrope") {
    rope.scaling = RopeSpec::Scaling::longrope;
  } else if (scaling != "none") {
    meta.fail(Error::unsupported(fmt::format("{}: rope scaling '{}'", meta.source(), scaling)));
  }
  rope.long_factors = read_factors(files, "rope_freqs.weight");
  if (auto factors = read_factors(files, "rope_factors_long.weight"); !factors.empty()) {
    rope.scaling = RopeSpec::Scaling::longrope;
    rope.long_factors = std::move(factors);
    rope.short_factors = read_factors(files, "rope_factors_short.weight");
  }
  spec.ropes = {rope};
}

struct NamedActivation {
  std::string_view name;
  HiddenActivation activation;
};

// The first name of an activation is the one that is written.
constexpr NamedActivation kActivationNames[] = {
    {"silu", HiddenActivation::silu},           {"swish", HiddenActivation::silu},
    {"gelu", HiddenActivation::gelu_erf},       {"gelu_pytorch_tanh", HiddenActivation::gelu_tanh},
    {"gelu_new", HiddenActivation::gelu_tanh},  {"gelu_fast", HiddenActivation::gelu_tanh},
    {"gelu_tanh", HiddenActivation::gelu_tanh}, {"relu", HiddenActivation::relu},
};

HiddenActivation find_activation(ConfigReader& config, const std::string& name) {
  for (const NamedActivation& one : kActivationNames)
    if (one.name == name) return one.activation;
  config.fail(Error::unsupported(fmt::format("{}: activation '{}'", config.source(), name)));
  return HiddenActivation::silu;
}

}  // namespace

void read_gguf_activation(ConfigReader& meta, ArchSpec& spec) {
  if (!meta.has("hidden_activation")) return;
  const std::string name = meta.text_or("hidden_activation", "");
  if (name.empty())
    meta.fail(Error::corrupt(
        fmt::format("{}: hidden_activation must be a string, the name of an activation", meta.source())));
  else
    spec.activation = find_activation(meta, name);
}

const char* activation_name(HiddenActivation activation) {
  return std::ranges::find(kActivationNames, activation, &NamedActivation::activation)->name.data();
}

void read_common_gguf(ConfigReader& meta, ArchSpec& spec, const ModelFiles& files) {
  spec.context = meta.count("context_length", 1, kMaxContext);
  spec.width = meta.count("embedding_length", 1, kMaxWidth);
  int64_t layers = meta.count("block_count", 1, kMaxLayers);
  if (meta.is_array("attention.head_count") || meta.is_array("attention.head_count_kv") ||
      meta.is_array("feed_forward_length")) {
    meta.fail(Error::unsupported(fmt::format("{}: head counts or hidden sizes that differ by layer", meta.source())));
    return;
  }
  spec.heads = meta.count("attention.head_count", 1, kMaxWidth);
  spec.kv_heads = meta.count_or("attention.head_count_kv", spec.heads, 1, kMaxWidth);
  spec.head_dim = meta.count_or("attention.key_length", std::max<int64_t>(1, spec.width / spec.heads), 1, kMaxWidth);
  int64_t value_dim = meta.count_or("attention.value_length", spec.head_dim, 1, kMaxWidth);
  if (value_dim != spec.head_dim) {
    meta.fail(Error::unsupported(
        fmt::format("{}: keys of {} and values of {} dims", meta.source(), spec.head_dim, value_dim)));
  }
  spec.moe.experts = meta.count_or("expert_count", 0, 0, kMaxExperts);
  spec.hidden = meta.count_or("feed_forward_length", 0, 0, kMaxWidth);
  if (spec.moe.experts > 0) {
    spec.moe.used = meta.count("expert_used_count", 1, spec.moe.experts);
    spec.moe.hidden = meta.count_or("expert_feed_forward_length", spec.hidden, 1, kMaxWidth);
    spec.moe.shared_hidden = meta.count_or("expert_shared_feed_forward_length", 0, 0, kMaxWidth);
    spec.moe.normalize = meta.flag_or("expert_weights_norm", spec.moe.normalize);
  } else if (spec.hidden < 1) {
    meta.fail(Error::corrupt(fmt::format("{}: feed_forward_length is missing", meta.source())));
  }
  spec.norm_eps = static_cast<float>(
      meta.number_or("attention.layer_norm_rms_epsilon", meta.number_or("attention.layer_norm_epsilon", 1e-5)));
  spec.attention_softcap = static_cast<float>(meta.number_or("attn_logit_softcapping", 0.0));
  spec.final_softcap = static_cast<float>(meta.number_or("final_logit_softcapping", 0.0));
  spec.attention_scale = static_cast<float>(meta.number_or("attention.scale", 0.0));
  spec.embedding_scale = static_cast<float>(meta.number_or("embedding_scale", 1.0));
  spec.residual_scale = static_cast<float>(meta.number_or("residual_scale", 1.0));
  spec.logit_scale = static_cast<float>(meta.number_or("logit_scale", 1.0));
  read_gguf_rope(meta, spec, files);
  spec.layers.assign(static_cast<size_t>(layers), LayerSpec{0, 0, spec.moe.experts > 0});
}

void read_gguf_vocab(ConfigReader& meta, ArchSpec& spec, const ModelFiles& files) {
  int64_t vocab = files.tokenizer ? static_cast<int64_t>(files.tokenizer->tokens.size()) : 0;
  spec.vocab = meta.count_or("vocab_size", vocab, 1, kMaxVocab);
  if (const StoredTensor* embedding = files.find("token_embd.weight")) spec.vocab = embedding->tensor.rows();
}

void read_common_huggingface(ConfigReader& config, ArchSpec& spec) {
  spec.vocab = config.count("vocab_size", 1, kMaxVocab);
  spec.width = config.count("hidden_size", 1, kMaxWidth);
  int64_t layers = config.count("num_hidden_layers", 1, kMaxLayers);
  spec.heads = config.count("num_attention_heads", 1, kMaxWidth);
  spec.kv_heads = config.count_or("num_key_value_heads", spec.heads, 1, kMaxWidth);
  spec.head_dim = config.count_or("head_dim", std::max<int64_t>(1, spec.width / spec.heads), 1, kMaxWidth);
  spec.hidden = config.count("intermediate_size", 1, kMaxWidth);
  spec.context = config.count_or("max_position_embeddings", 2048, 1, kMaxContext);
  spec.norm_eps = static_cast<float>(config.number_or("rms_norm_eps", config.number_or("layer_norm_eps", 1e-6)));
  spec.activation = find_activation(
      config,
      config.text_or("hidden_activation", config.text_or("hidden_act", config.text_or("activation_function", "silu"))));
  read_huggingface_ropes(config, spec);
  spec.layers.assign(static_cast<size_t>(layers), LayerSpec{});
}

void alternate_windows(ArchSpec& spec, int64_t window, int64_t pattern) {
  for (int64_t i = 0; i < spec.layer_count(); ++i)
    spec.layers[i].window = pattern > 0 && (i + 1) % pattern == 0 ? 0 : window;
}

void read_huggingface_windows(ConfigReader& config, ArchSpec& spec, int64_t default_pattern) {
  int64_t window = config.count_or("sliding_window", 0, 0, kMaxContext);
  auto types = config.texts_or_empty("layer_types");
  if (!types.empty()) {
    if (types.size() != spec.layers.size()) {
      config.fail(Error::corrupt(fmt::format("{}: layer_types has {} entries for {} layers", config.source(),
                                             types.size(), spec.layers.size())));
      return;
    }
    for (size_t i = 0; i < types.size(); ++i) {
      if (types[i] == "sliding_attention")
        spec.layers[i].window = window;
      else if (types[i] != "full_attention")
        config.fail(Error::unsupported(fmt::format("{}: layer type '{}'", config.source(), types[i])));
    }
    return;
  }
  alternate_windows(spec, window, config.count_or("sliding_window_pattern", default_pattern, 0, kMaxLayers));
}

void read_huggingface_moe(ConfigReader& config, ArchSpec& spec, std::string_view experts_key,
                          std::string_view hidden_key) {
  spec.moe.experts = config.count(experts_key, 1, kMaxExperts);
  spec.moe.used = config.count("num_experts_per_tok", 1, spec.moe.experts);
  spec.moe.hidden = config.count_or(hidden_key, spec.hidden, 1, kMaxWidth);
  for (auto& layer : spec.layers) layer.moe = true;
}

}  // namespace millrace
