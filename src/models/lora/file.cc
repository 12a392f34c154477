#include "models/lora/file.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <optional>

#include "base/ordered_json.h"
#include "loader/gguf_model.h"
#include "loader/hf_weights.h"
#include "loader/model_folder.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Matrices of a layer that may have factors.
constexpr std::string_view kParts[] = {"attn_q",         "attn_k",       "attn_v",        "attn_qkv",
                                       "attn_output",    "ffn_gate",     "ffn_up",        "ffn_down",
                                       "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"};

Error cannot(const std::string& path, const std::string& what) {
  return Error::unsupported(fmt::format("{}: {}", path, what));
}

// "self_attn.q_proj" of layer 3, as in the tail of PEFT's names: without the prefix before the layers, and without
// ".weight".
std::map<std::string, std::string> huggingface_modules(const Arch& arch, int64_t layers) {
  std::map<std::string, std::string> modules;
  const auto add = [&](const std::string& canonical) {
    std::string name = huggingface_name(arch, canonical);
    if (name.starts_with("^")) name.erase(0, 1);
    for (std::string_view prefix : {"model.", "transformer."})
      if (name.starts_with(prefix)) name.erase(0, prefix.size());
    if (name.ends_with(".weight")) modules.emplace(name.substr(0, name.size() - 7), canonical);
  };
  for (int64_t layer = 0; layer < layers; ++layer)
    for (std::string_view part : kParts) add(fmt::format("blk.{}.{}.weight", layer, part));
  add("output.weight");
  return modules;
}

struct FactorName {
  std::string module;
  bool a = false;
};

std::optional<FactorName> gguf_factor(const std::string& name) {
  for (const bool a : {true, false}) {
    const std::string_view end = a ? ".lora_a" : ".lora_b";
    if (name.ends_with(end)) return FactorName{name.substr(0, name.size() - end.size()), a};
  }
  return std::nullopt;
}

std::optional<FactorName> peft_factor(const std::string& name) {
  for (const bool a : {true, false}) {
    const size_t at = name.rfind(a ? ".lora_A." : ".lora_B.");
    if (at == std::string::npos || !name.ends_with(".weight")) continue;
    std::string module = name.substr(0, at);
    for (std::string_view prefix : {"base_model.", "model.", "model.", "transformer.", "language_model.", "model."})
      if (module.starts_with(prefix)) module.erase(0, prefix.size());
    return FactorName{module, a};
  }
  return std::nullopt;
}

Result<void> read_gguf_keys(LoraFile& lora, const std::string& path, const Arch& arch) {
  const Json& config = *lora.files.config;
  const auto text = [&](const char* key) {
    return config.contains(key) && config[key].is_string() ? config[key].get<std::string>() : std::string();
  };
  if (text("general.type") != "adapter")
    return Error::user(fmt::format("{}: is not an adapter: its general.type is '{}'", path, text("general.type")));
  if (text("adapter.type") != "lora")
    return cannot(path, fmt::format("adapter of type '{}'; lora is supported", text("adapter.type")));
  const std::string_view name = arch.gguf_name.empty() ? arch.name : arch.gguf_name;
  if (lora.files.architecture != name && lora.files.architecture != arch.name)
    return Error::user(fmt::format("{}: is an adapter for {}, the model is {}", path, lora.files.architecture, name));
  if (config.contains("adapter.alora.invocation_tokens"))
    return cannot(path, "activated LoRA (adapter.alora.invocation_tokens)");
  if (config.contains("adapter.lora.alpha")) {
    if (!config["adapter.lora.alpha"].is_number())
      return Error::corrupt(fmt::format("{}: adapter.lora.alpha is not a number", path));
    lora.alpha = config["adapter.lora.alpha"].get<double>();
  }
  lora.rope_style = arch.gguf_rope;
  return {};
}

Result<void> read_peft_config(LoraFile& lora, const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    return Error::user(fmt::format("{}: is missing; an adapter's folder needs it next to the weights", path.string()));
  MILLRACE_TRY(const Json config, read_json_object(path));
  const auto flag = [&](const char* key) {
    return config.contains(key) && config[key].is_boolean() && config[key].get<bool>();
  };
  const auto filled = [&](const char* key) {
    return config.contains(key) && (config[key].is_object() || config[key].is_array()) && !config[key].empty();
  };
  if (config.contains("peft_type") && config["peft_type"] != "LORA")
    return cannot(path.string(),
                  "peft_type " +
                      config["peft_type"].dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) +
                      "; LORA is supported");
  if (flag("use_dora")) return cannot(path.string(), "DoRA (use_dora)");
  if (filled("alpha_pattern")) return cannot(path.string(), "per-module alpha (alpha_pattern)");
  if (filled("modules_to_save")) return cannot(path.string(), "fully trained modules (modules_to_save)");
  if (config.contains("bias") && config["bias"].is_string() && config["bias"] != "none")
    return cannot(path.string(), "trained biases (bias)");
  if (!config.contains("lora_alpha") || !config["lora_alpha"].is_number())
    return Error::corrupt(fmt::format("{}: lora_alpha is missing or not a number", path.string()));
  lora.alpha = config["lora_alpha"].get<double>();
  lora.rank_stabilized = flag("use_rslora");
  return {};
}

Result<void> collect(LoraFile& lora, const std::string& path, const Arch& arch, int64_t layers) {
  const bool gguf = lora.files.kind == ModelFiles::Kind::gguf;
  const auto modules = gguf ? std::map<std::string, std::string>() : huggingface_modules(arch, layers);
  for (const StoredTensor& stored : lora.files.tensors) {
    const auto name = gguf ? gguf_factor(stored.name) : peft_factor(stored.name);
    if (!name) return cannot(path, fmt::format("tensor {}: only factors of matrices are supported", stored.name));
    std::string canonical = name->module;
    if (!gguf) {
      const auto found = modules.find(name->module);
      if (found == modules.end())
        return cannot(path, fmt::format("tensor {}: not a matrix of the model that adapters can change", stored.name));
      canonical = found->second;
    }
    const StoredTensor*& factor = name->a ? lora.factors[canonical].a : lora.factors[canonical].b;
    if (factor)
      return Error::corrupt(fmt::format("{}: tensors {} and {} are the same factor", path, factor->name, stored.name));
    factor = &stored;
  }
  for (const auto& [canonical, pair] : lora.factors) {
    const StoredTensor* there = pair.a ? pair.a : pair.b;
    if (!pair.a || !pair.b) return Error::corrupt(fmt::format("{}: tensor {} has no partner", path, there->name));
  }
  if (lora.factors.empty()) return Error::corrupt(fmt::format("{}: holds no factors", path));
  return {};
}

}  // namespace

float LoraFile::scale(int64_t rank) const {
  if (alpha == 0) return 1.0f;
  const auto r = static_cast<double>(rank);
  return static_cast<float>(alpha / (rank_stabilized ? std::sqrt(r) : r));
}

Result<LoraFile> open_lora_file(const std::string& path, const Arch& arch, int64_t layers) {
  LoraFile lora;
  std::error_code ignored;
  if (fs::is_directory(path, ignored) || path.ends_with(".safetensors")) {
    const fs::path weights =
        fs::is_directory(path, ignored) ? fs::path(path) / "adapter_model.safetensors" : fs::path(path);
    if (!fs::exists(weights, ignored))
      return Error::user(fmt::format("{}: is missing; adapters are read from GGUF or safetensors", weights.string()));
    lora.files.kind = ModelFiles::Kind::huggingface;
    lora.files.path = path;
    MILLRACE_TRY_VOID(read_peft_config(lora, weights.parent_path() / "adapter_config.json"));
    MILLRACE_TRY_VOID(open_safetensors_weights(lora.files, weights));
  } else {
    MILLRACE_TRY(lora.files, open_gguf(path));
    MILLRACE_TRY_VOID(read_gguf_keys(lora, path, arch));
  }
  if (!std::isfinite(lora.alpha)) return Error::corrupt(fmt::format("{}: alpha is not finite", path));
  MILLRACE_TRY_VOID(collect(lora, path, arch, layers));
  return lora;
}

}  // namespace millrace
