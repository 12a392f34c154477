#include "models/arch/common.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/arch/gguf_rope.h"
#include "models/arch/rope_fields.h"

namespace millrace {
namespace {

struct NamedActivation {
  std::string_view name;
  HiddenActivation activation;
};

// The first name of an activation is the one that is written.
constexpr NamedActivation kActivationNames[] = {
    {"silu", HiddenActivation::silu},
    {"swish", HiddenActivation::silu},
    {"gelu", HiddenActivation::gelu_erf},
    {"gelu_pytorch_tanh", HiddenActivation::gelu_tanh},
    {"gelu_new", HiddenActivation::gelu_tanh},
    {"gelu_fast", HiddenActivation::gelu_tanh},
    {"gelu_tanh", HiddenActivation::gelu_tanh},
    {"relu", HiddenActivation::relu},
    {"clamped_swiglu", HiddenActivation::clamped_swiglu},
};

bool is_sliding(ConfigReader& config, const std::string& layer_type) {
  if (layer_type != "sliding_attention" && layer_type != "full_attention")
    config.fail(Error::unsupported(fmt::format("{}: layer type '{}'", config.source(), layer_type)));
  return layer_type == "sliding_attention";
}

HiddenActivation find_activation(ConfigReader& config, const std::string& name) {
  for (const NamedActivation& one : kActivationNames)
    if (one.name == name) return one.activation;
  config.fail(Error::unsupported(fmt::format("{}: activation '{}'", config.source(), name)));
  return HiddenActivation::silu;
}

// A count for each of the layers: a list, or one number for all.
std::vector<int64_t> counts_of_layers(ConfigReader& meta, std::string_view key, int64_t layers, int64_t otherwise,
                                      int64_t min) {
  std::vector<int64_t> out(static_cast<size_t>(layers), otherwise);
  if (!meta.is_array(key)) {
    out.assign(out.size(), meta.count_or(key, otherwise, min, kMaxWidth));
    return out;
  }
  const std::vector<double> stated = meta.numbers_or_empty(key);
  const auto fits = [&](double n) {
    return n == std::floor(n) && n >= static_cast<double>(min) && n <= static_cast<double>(kMaxWidth);
  };
  if (stated.size() != out.size() || !std::ranges::all_of(stated, fits)) {
    meta.fail(Error::corrupt(fmt::format("{}: {} must have a number of at least {} for each of {} layers",
                                         meta.source(), key, min, layers)));
    return out;
  }
  std::ranges::transform(stated, out.begin(), [](double n) { return static_cast<int64_t>(n); });
  return out;
}

}  // namespace

void read_gguf_activation(ConfigReader& meta, ArchSpec& spec) {
  if (!meta.has("hidden_activation")) return;
  const std::string name = meta.is_text("hidden_activation") ? meta.text_or("hidden_activation", "") : "";
  if (name.empty())
    meta.fail(Error::corrupt(
        fmt::format("{}: hidden_activation must be a string, the name of an activation", meta.source())));
  else
    spec.activation = find_activation(meta, name);
}

const char* activation_name(HiddenActivation activation) {
  return std::ranges::find(kActivationNames, activation, &NamedActivation::activation)->name.data();
}

void read_common_gguf(ConfigReader& meta, ArchSpec& spec, const ModelFiles& files, bool by_layer) {
  spec.context = meta.count("context_length", 1, kMaxContext);
  spec.width = meta.count("embedding_length", 1, kMaxWidth);
  int64_t layers = meta.count("block_count", 1, kMaxLayers);
  if (meta.is_array("attention.head_count") ||
      (!by_layer && (meta.is_array("attention.head_count_kv") || meta.is_array("feed_forward_length")))) {
    meta.fail(Error::unsupported(fmt::format("{}: head counts or hidden sizes that differ by layer", meta.source())));
    return;
  }
  spec.heads = meta.count("attention.head_count", 1, kMaxWidth);
  const std::vector<int64_t> kv_heads = counts_of_layers(meta, "attention.head_count_kv", layers, spec.heads, 1);
  spec.kv_heads = *std::ranges::max_element(kv_heads);
  spec.head_dim = meta.count_or("attention.key_length", std::max<int64_t>(1, spec.width / spec.heads), 1, kMaxWidth);
  int64_t value_dim = meta.count_or("attention.value_length", spec.head_dim, 1, kMaxWidth);
  if (value_dim != spec.head_dim) {
    meta.fail(Error::unsupported(
        fmt::format("{}: keys of {} and values of {} dims", meta.source(), spec.head_dim, value_dim)));
  }
  spec.moe.experts = meta.count_or("expert_count", 0, 0, kMaxExperts);
  const std::vector<int64_t> hidden = counts_of_layers(meta, "feed_forward_length", layers, 0, 0);
  spec.hidden = *std::ranges::max_element(hidden);
  if (spec.moe.experts > 0) {
    spec.moe.used = meta.count("expert_used_count", 1, spec.moe.experts);
    spec.moe.hidden = meta.count_or("expert_feed_forward_length", spec.hidden, 1, kMaxWidth);
    spec.moe.shared_hidden = meta.count_or("expert_shared_feed_forward_length", 0, 0, kMaxWidth);
    spec.moe.normalize = meta.flag_or("expert_weights_norm", spec.moe.normalize);
    const double scale = meta.number_or("expert_weights_scale", 1.0);
    spec.moe.scale = scale == 0.0 ? 1.0f : static_cast<float>(scale);  // 0: none
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
  spec.ropes = {read_gguf_rope(meta, spec.head_dim, spec.context, YarnLogUnit::whole).rope};
  read_gguf_rope_tensors(files, spec.ropes[0]);
  spec.layers.assign(static_cast<size_t>(layers), LayerSpec{0, 0, spec.moe.experts > 0});
  for (size_t i = 0; by_layer && i < spec.layers.size(); ++i) {
    spec.layers[i].kv_heads = kv_heads[i];
    spec.layers[i].hidden = hidden[i];
  }
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
  // Mixtures without a dense MLP may state the width of their experts alone.
  const bool experts_alone = !config.has("intermediate_size") && config.has("moe_intermediate_size");
  const std::vector<int64_t> hidden =
      config.is_array("intermediate_size")
          ? counts_of_layers(config, "intermediate_size", layers, 1, 1)
          : std::vector(1, config.count(experts_alone ? "moe_intermediate_size" : "intermediate_size", 1, kMaxWidth));
  spec.hidden = *std::ranges::max_element(hidden);
  spec.context = config.count_or("max_position_embeddings", 2048, 1, kMaxContext);
  spec.norm_eps = static_cast<float>(config.number_or("rms_norm_eps", config.number_or("layer_norm_eps", 1e-6)));
  spec.activation = find_activation(
      config,
      config.text_or("hidden_activation", config.text_or("hidden_act", config.text_or("activation_function", "silu"))));
  read_huggingface_ropes(config, spec);
  spec.layers.assign(static_cast<size_t>(layers), LayerSpec{});
  for (size_t i = 0; hidden.size() > 1 && i < spec.layers.size(); ++i) spec.layers[i].hidden = hidden[i];
}

void alternate_windows(ArchSpec& spec, int64_t window, int64_t pattern) {
  for (int64_t i = 0; i < spec.layer_count(); ++i)
    spec.layers[i].window = pattern > 0 && (i + 1) % pattern == 0 ? 0 : window;
}

void read_gguf_window_layers(ConfigReader& meta, ArchSpec& spec, int64_t window) {
  const std::vector<double> pattern = meta.numbers_or_empty("attention.sliding_window_pattern");
  if (pattern.size() != spec.layers.size())
    return meta.fail(
        Error::corrupt(fmt::format("{}: attention.sliding_window_pattern must have an entry for each of {} layers",
                                   meta.source(), spec.layer_count())));
  for (size_t i = 0; i < pattern.size(); ++i) spec.layers[i].window = pattern[i] != 0 ? window : 0;
}

void share_last_keys(ConfigReader& config, ArchSpec& spec, int64_t shared) {
  const int64_t first = spec.layer_count() - shared;
  for (int64_t i = first; i < spec.layer_count(); ++i) {
    LayerSpec& layer = spec.layers[static_cast<size_t>(i)];
    for (int64_t from = 0; from < first; ++from)
      if ((spec.layers[static_cast<size_t>(from)].window > 0) == (layer.window > 0)) layer.kv_from = from;
    if (layer.kv_from < 0)
      return config.fail(
          Error::corrupt(fmt::format("{}: layer {} has no layer of its kind before layer {} whose keys it could read",
                                     config.source(), i, first)));
  }
}

void read_huggingface_windows(ConfigReader& config, ArchSpec& spec, int64_t default_pattern) {
  const int64_t window = config.count_or("sliding_window", 0, 0, kMaxContext);
  // Transformers writes the second name since it writes layer_types, which says the same.
  const int64_t stated = config.count_or("_sliding_window_pattern", default_pattern, 0, kMaxLayers);
  const int64_t pattern = config.count_or("sliding_window_pattern", stated, 0, kMaxLayers);
  const auto types = config.texts_or_empty("layer_types");
  if (types.empty()) return alternate_windows(spec, window, pattern);
  if (types.size() != spec.layers.size()) {
    config.fail(Error::corrupt(fmt::format("{}: layer_types has {} entries for {} layers", config.source(),
                                           types.size(), spec.layers.size())));
    return;
  }
  for (size_t i = 0; i < types.size(); ++i)
    if (is_sliding(config, types[i])) spec.layers[i].window = window;
}

void skip_huggingface_windows(ConfigReader& config) {
  for (const char* key : {"sliding_window", "sliding_window_pattern", "_sliding_window_pattern", "max_window_layers"})
    config.has(key);
  for (const std::string& type : config.texts_or_empty("layer_types")) is_sliding(config, type);
}

void read_huggingface_moe(ConfigReader& config, ArchSpec& spec, std::string_view experts_key,
                          std::string_view hidden_key) {
  spec.moe.experts = config.count(experts_key, 1, kMaxExperts);
  spec.moe.used = config.count("num_experts_per_tok", 1, spec.moe.experts);
  spec.moe.hidden = config.count_or(hidden_key, spec.hidden, 1, kMaxWidth);
  for (auto& layer : spec.layers) layer.moe = true;
}

void read_huggingface_moe_layers(ConfigReader& config, ArchSpec& spec) {
  const int64_t step = config.count_or("decoder_sparse_step", 1, 1, kMaxLayers);
  for (int64_t i = 0; i < spec.layer_count(); ++i) spec.layers[i].moe = (i + 1) % step == 0;
  for (double layer : config.numbers_or_empty("mlp_only_layers"))
    if (layer >= 0 && layer < static_cast<double>(spec.layer_count()))
      spec.layers[static_cast<size_t>(layer)].moe = false;
}

}  // namespace millrace
