#include "models/arch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/ordered_json.h"
#include "models/arch/common.h"
#include "models/arch/rope_fields.h"
#include "models/arch/unread_fields.h"
#include "models/layer_mixers.h"
#include "models/unknown/nearest_arch.h"

namespace millrace {
namespace {

// Tensor names shared by all Llama-like checkpoints.
const std::vector<TensorName> kCommonNames = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"output.bias", "lm_head.bias"},
    {"cls.output.weight", "score.weight"},
    {"cls.output.bias", "score.bias"},
    {"blk.{l}.attn_norm.weight", "model.layers.{l}.input_layernorm.weight"},
    {"blk.{l}.attn_q.weight", "model.layers.{l}.self_attn.q_proj.weight"},
    {"blk.{l}.attn_k.weight", "model.layers.{l}.self_attn.k_proj.weight"},
    {"blk.{l}.attn_v.weight", "model.layers.{l}.self_attn.v_proj.weight"},
    {"blk.{l}.attn_qkv.weight", "model.layers.{l}.self_attn.qkv_proj.weight"},
    {"blk.{l}.attn_output.weight", "model.layers.{l}.self_attn.o_proj.weight"},
    {"blk.{l}.attn_q.bias", "model.layers.{l}.self_attn.q_proj.bias"},
    {"blk.{l}.attn_k.bias", "model.layers.{l}.self_attn.k_proj.bias"},
    {"blk.{l}.attn_v.bias", "model.layers.{l}.self_attn.v_proj.bias"},
    {"blk.{l}.attn_output.bias", "model.layers.{l}.self_attn.o_proj.bias"},
    {"blk.{l}.attn_q_norm.weight", "model.layers.{l}.self_attn.q_norm.weight"},
    {"blk.{l}.attn_k_norm.weight", "model.layers.{l}.self_attn.k_norm.weight"},
    {"blk.{l}.attn_int_q.weight", "model.layers.{l}.self_attn.q_int.weight"},
    {"blk.{l}.attn_int_k.weight", "model.layers.{l}.self_attn.k_int.weight"},
    {"blk.{l}.attn_int.bias", "model.layers.{l}.self_attn.int_bias"},
    {"blk.{l}.attn_select.weight", "model.layers.{l}.self_attn.q_router.weight_proj.weight"},
    {"blk.{l}.attn_select.bias", "model.layers.{l}.self_attn.q_router.weight_proj.bias"},
    {"blk.{l}.attn_select.temperature", "model.layers.{l}.self_attn.q_router.temp"},
    {"blk.{l}.ffn_norm.weight", "model.layers.{l}.post_attention_layernorm.weight"},
    {"blk.{l}.ffn_gate.weight", "model.layers.{l}.mlp.gate_proj.weight"},
    {"blk.{l}.ffn_up.weight", "model.layers.{l}.mlp.up_proj.weight"},
    {"blk.{l}.ffn_up_gate.weight", "model.layers.{l}.mlp.upgate_proj.weight"},  // of QuIP#'s checkpoints
    {"blk.{l}.ffn_down.weight", "model.layers.{l}.mlp.down_proj.weight"},
    {"blk.{l}.ffn_gate.bias", "model.layers.{l}.mlp.gate_proj.bias"},
    {"blk.{l}.ffn_up.bias", "model.layers.{l}.mlp.up_proj.bias"},
    {"blk.{l}.ffn_down.bias", "model.layers.{l}.mlp.down_proj.bias"},
    {"blk.{l}.ffn_gate_inp.weight", "model.layers.{l}.mlp.gate.weight"},
    {"blk.{l}.ffn_gate.{e}.weight", "model.layers.{l}.mlp.experts.{e}.gate_proj.weight"},
    {"blk.{l}.ffn_up.{e}.weight", "model.layers.{l}.mlp.experts.{e}.up_proj.weight"},
    {"blk.{l}.ffn_down.{e}.weight", "model.layers.{l}.mlp.experts.{e}.down_proj.weight"},
    {"blk.{l}.ffn_gate_inp_shexp.weight", "model.layers.{l}.mlp.shared_expert_gate.weight"},
    {"blk.{l}.ffn_gate_shexp.weight", "model.layers.{l}.mlp.shared_expert.gate_proj.weight"},
    {"blk.{l}.ffn_up_shexp.weight", "model.layers.{l}.mlp.shared_expert.up_proj.weight"},
    {"blk.{l}.ffn_down_shexp.weight", "model.layers.{l}.mlp.shared_expert.down_proj.weight"},
};

// Matches `name` against `pattern`, where {l} and {e} match digits; returns the matched digits.
bool match_pattern(std::string_view pattern, std::string_view name, std::string_view& layer, std::string_view& expert) {
  while (!pattern.empty()) {
    if (pattern.starts_with("{l}") || pattern.starts_with("{e}")) {
      size_t digits = 0;
      while (digits < name.size() && name[digits] >= '0' && name[digits] <= '9') ++digits;
      if (digits == 0) return false;
      (pattern[1] == 'l' ? layer : expert) = name.substr(0, digits);
      name.remove_prefix(digits);
      pattern.remove_prefix(3);
    } else {
      if (name.empty() || name[0] != pattern[0]) return false;
      name.remove_prefix(1);
      pattern.remove_prefix(1);
    }
  }
  return name.empty();
}

std::string fill_pattern(std::string_view pattern, std::string_view layer, std::string_view expert) {
  std::string out;
  while (!pattern.empty()) {
    if (pattern.starts_with("{l}") || pattern.starts_with("{e}")) {
      out += pattern[1] == 'l' ? layer : expert;
      pattern.remove_prefix(3);
    } else {
      out += pattern[0];
      pattern.remove_prefix(1);
    }
  }
  return out;
}

// The published multimodal Gemma 3 state in text_config only what differs from the defaults of Transformers' class.
nlohmann::ordered_json gemma3_defaults() {
  return {{"vocab_size", 262208},
          {"hidden_size", 2304},
          {"intermediate_size", 9216},
          {"num_hidden_layers", 26},
          {"num_attention_heads", 8},
          {"num_key_value_heads", 4},
          {"head_dim", 256},
          {"hidden_activation", "gelu_pytorch_tanh"},
          {"max_position_embeddings", 131072},
          {"rms_norm_eps", 1e-6},
          {"query_pre_attn_scalar", 256},
          {"sliding_window", 4096}};
}

// The language model's fields: multimodal checkpoints store them in text_config.
nlohmann::ordered_json language_fields(const nlohmann::ordered_json& config) {
  const auto text = config.find("text_config");
  if (text == config.end() || !text->is_object()) return config;
  const auto type = text->find("model_type");
  if (type == text->end() || *type != "gemma3_text") return *text;
  nlohmann::ordered_json fields = gemma3_defaults();
  fields.update(*text);
  return fields;
}

// Describes the first layer that cannot read the keys and values of its source (LayerSpec::kv_from); "" if all can.
std::string shared_keys_problem(const ArchSpec& spec) {
  for (int64_t i = 0; i < spec.layer_count(); ++i) {
    const LayerSpec& layer = spec.layers[static_cast<size_t>(i)];
    if (layer.kv_from < 0) continue;
    if (layer.kv_from >= i)
      return fmt::format("layer {} reads the keys of layer {}, which runs later", i, layer.kv_from);
    const LayerSpec& source = spec.layers[static_cast<size_t>(layer.kv_from)];
    if (source.kv_from >= 0)
      return fmt::format("layer {} reads the keys of layer {}, which stores none", i, layer.kv_from);
    if (source.kv_heads != layer.kv_heads || source.head_dim != layer.head_dim || source.value_dim != layer.value_dim)
      return fmt::format(
          "layer {} has {} KV heads with {} dims of keys and {} of values, and reads those of layer {}, which has {} "
          "with {} and {}",
          i, layer.kv_heads, layer.head_dim, layer.value_dim, layer.kv_from, source.kv_heads, source.head_dim,
          source.value_dim);
  }
  return {};
}

Result<void> check_spec(const ArchSpec& spec, const std::string& source) {
  auto bad = [&](const std::string& what) { return Error::corrupt(fmt::format("{}: {}", source, what)); };
  for (const LayerSpec& layer : spec.layers)
    if (const std::string problem = mixers_problem(spec, layer); !problem.empty()) return bad(problem);
  if (const std::string problem = shared_keys_problem(spec); !problem.empty()) return bad(problem);
  if (spec.vocab < 1 || spec.vocab > kMaxVocab) return bad(fmt::format("vocabulary of {} tokens", spec.vocab));
  if (spec.activation == HiddenActivation::clamped_swiglu && !(spec.gated && spec.activation_limit > 0.0f))
    return bad(fmt::format("activation {} without a gate, or with limit {}", activation_name(spec.activation),
                           spec.activation_limit));
  if (!(spec.norm_eps >= 0.0f && spec.norm_eps < 1.0f)) return bad(fmt::format("norm epsilon {}", spec.norm_eps));
  for (float scale : {spec.embedding_scale, spec.attention_scale, spec.residual_scale, spec.logit_scale,
                      spec.gate_scale, spec.mlp_scale, spec.attention_softcap, spec.final_softcap})
    if (!std::isfinite(scale)) return bad(fmt::format("a scale or soft-cap of the configuration is {}", scale));
  for (const auto& rope : spec.ropes) {
    if (!(rope.factor > 0.0)) return bad(fmt::format("rope scaling factor {}", rope.factor));
    if (!(rope.theta > 0.0)) return bad(fmt::format("rope base {}", rope.theta));
    for (const auto* factors : {&rope.long_factors, &rope.short_factors}) {
      for (float factor : *factors)
        if (!(factor > 0.0f && std::isfinite(factor))) return bad(fmt::format("rope frequency factor {}", factor));
      if (!factors->empty() && static_cast<int64_t>(factors->size()) != rope.rotated / 2)
        return bad(fmt::format("{} rope factors for {} frequencies", factors->size(), rope.rotated / 2));
    }
  }
  return {};
}

// Deals with the fields that no reader has looked at: lists them in `unread`, or fails if that is null.
void check_unread(ConfigReader& config, const ArchSpec& spec, const Arch& arch, std::vector<std::string>* unread) {
  if (!config.status().ok()) return;
  if (!unread) return refuse_unread_fields(config, spec, arch.name, arch.harmless_fields);
  for (const UnreadField& field : unread_fields(config, spec, arch.harmless_fields))
    unread->push_back(fmt::format("{} is {}", field.path, field.value));
}

const Arch* arch_of_type(const std::string& model_type) {
  const auto found = std::ranges::find(archs().members(), std::string_view(model_type),
                                       [](const Arch* arch) { return arch->huggingface_type; });
  return model_type.empty() || found == archs().members().end() ? nullptr : *found;
}

// The family of a multimodal folder's text part, if the folder names no class.
const Arch* arch_of_text(const ModelFiles& files) {
  const auto text = files.config->find("text_config");
  if (text == files.config->end() || !text->is_object()) return nullptr;
  if (ConfigReader(*files.config, files.path).text_or("model_type", "") != files.architecture) return nullptr;
  return arch_of_type(ConfigReader(*text, files.path).text_or("model_type", ""));
}

}  // namespace

const Arch* find_arch(const ModelFiles& files) {
  const auto named = [&](const Arch* arch) {
    return std::ranges::find(arch->huggingface, files.architecture) != arch->huggingface.end();
  };
  // Qwen3ForSequenceClassification: the family's decoder with a ranking head (models/ranking_head.h).
  if (files.kind == ModelFiles::Kind::huggingface && files.architecture.ends_with("ForSequenceClassification") &&
      std::ranges::none_of(archs().members(), named)) {
    return arch_of_type(ConfigReader(*files.config, files.path).text_or("model_type", ""));
  }
  const bool gguf = files.kind == ModelFiles::Kind::gguf;
  const auto fits = [&](const Arch* arch) {
    return gguf ? arch->name == files.architecture : arch->huggingface_type == files.architecture || named(arch);
  };
  const Arch* unclaimed = nullptr;
  for (const Arch* arch : archs().members()) {
    if (!fits(arch)) continue;
    if (gguf || (arch->claims && arch->claims(*files.config))) return arch;
    if (!arch->claims && !unclaimed) unclaimed = arch;
  }
  return gguf || unclaimed ? unclaimed : arch_of_text(files);
}

static Result<ArchSpec> read_spec(const ModelFiles& files, const Arch* arch, std::vector<std::string>* unread) {
  ArchSpec spec;
  spec.arch = arch->name;
  const auto& config = *files.config;
  if (files.kind == ModelFiles::Kind::gguf) {
    spec.rope_style = arch->gguf_rope;
    ConfigReader meta(config, files.path, std::string(arch->name) + ".");
    spec.name = ConfigReader(config, files.path).text_or("general.name", "");
    spec.activation = arch->activation;
    if (arch->common_gguf) read_common_gguf(meta, spec, files, arch->sizes_by_layer);
    read_gguf_vocab(meta, spec, files);
    if (arch->read_gguf && meta.status().ok()) arch->read_gguf(meta, spec);
    read_gguf_activation(meta, spec);
    check_unread(meta, spec, *arch, unread);
    MILLRACE_TRY_VOID(meta.status());
  } else {
    const nlohmann::ordered_json fields = language_fields(config);
    ConfigReader reader(fields, files.path + "/config.json");
    if (arch->common_huggingface) read_common_huggingface(reader, spec);
    if (arch->read_huggingface && reader.status().ok()) arch->read_huggingface(reader, spec);
    assign_window_ropes(spec);
    check_unread(reader, spec, *arch, unread);
    MILLRACE_TRY_VOID(reader.status());
  }
  for (LayerSpec& layer : spec.layers) set_own_sizes(spec, layer);
  MILLRACE_TRY_VOID(check_spec(spec, files.path));
  if (spec.attention_scale == 0.0f && spec.head_dim > 0)
    spec.attention_scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  return spec;
}

Result<ArchSpec> read_arch_spec(const ModelFiles& files) {
  const Arch* arch = find_arch(files);
  if (!arch) return unknown_architecture(files);
  return read_spec(files, arch, nullptr);
}

Result<ArchSpec> read_arch_spec_as(const ModelFiles& files, const Arch& arch, std::vector<std::string>& unread) {
  return read_spec(files, &arch, &unread);
}

nlohmann::ordered_json model_fields(const ModelFiles& files) {
  return files.kind == ModelFiles::Kind::gguf ? *files.config : language_fields(*files.config);
}

std::span<const TensorName> common_tensor_names() { return kCommonNames; }

std::string gguf_tensor_name(const Arch& arch, std::string_view canonical) {
  for (const GgufName& rule : arch.gguf_names) {
    std::string_view layer, expert;
    if (match_pattern(rule.canonical, canonical, layer, expert)) return fill_pattern(rule.stored, layer, expert);
  }
  return std::string(canonical);
}

std::string canonical_name(const Arch& arch, std::string_view huggingface) {
  constexpr std::string_view kBefore = "language_model.", kBehind = "model.language_model.";
  std::string name(huggingface);
  if (name.starts_with(kBefore)) name.erase(0, kBefore.size());
  if (name.starts_with(kBehind)) name = "model." + name.substr(kBehind.size());
  for (const auto* names : {&arch.names, &kCommonNames}) {
    for (const auto& rule : *names) {
      std::string_view layer, expert;
      if (match_pattern(rule.huggingface, name, layer, expert)) return fill_pattern(rule.canonical, layer, expert);
    }
  }
  return {};
}

std::string huggingface_name(const Arch& arch, std::string_view canonical) {
  for (const auto* names : {&arch.names, &kCommonNames}) {
    for (const auto& rule : *names) {
      std::string_view layer, expert;
      if (match_pattern(rule.canonical, canonical, layer, expert)) return fill_pattern(rule.huggingface, layer, expert);
    }
  }
  return {};
}

}  // namespace millrace
