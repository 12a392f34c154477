#include "loader/hf_model.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "base/ordered_json.h"
#include "loader/file_text.h"
#include "loader/grouped_rows.h"
#include "loader/hf_text.h"
#include "loader/hf_weights.h"
#include "loader/interleaved_experts.h"
#include "loader/mlx_affine.h"
#include "loader/model_folder.h"
#include "loader/quantized/quantized.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Result<Json> read_config(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    return Error::corrupt(fmt::format("{}: is missing; a model folder needs it next to the weights", path.string()));
  }
  return read_json_object(path);
}

// architectures[0], or model_type if there is none.
Result<std::string> read_architecture(const Json& config, const std::string& path) {
  auto list = config.find("architectures");
  if (list != config.end() && list->is_array() && !list->empty() && list->front().is_string()) {
    return list->front().get<std::string>();
  }
  auto type = config.find("model_type");
  if (type != config.end() && type->is_string()) return type->get<std::string>();
  return Error::corrupt(fmt::format("{}: has no architecture in 'architectures' or 'model_type'", path));
}

// NVIDIA's Model Optimizer describes a quantized checkpoint in a file of its own, and newer versions in config.json
// too.
Result<void> add_modelopt_config(const fs::path& folder, Json& config) {
  const fs::path path = folder / "hf_quant_config.json";
  std::error_code ignored;
  if (config.contains("quantization_config") || !fs::exists(path, ignored)) return {};
  MILLRACE_TRY(const Json file, read_config(path));
  const auto quantization = file.find("quantization");
  if (quantization == file.end() || !quantization->is_object())
    return Error::corrupt(fmt::format("{}: key 'quantization' must be an object", path.string()));
  config["quantization_config"] = *quantization;
  config["quantization_config"]["quant_method"] = "modelopt";
  return {};
}

// AutoGPTQ and AutoAWQ once described a quantized checkpoint in files of their own. AutoAWQ's has other names of
// fields.
Result<void> add_quantize_config(const fs::path& folder, Json& config) {
  std::error_code ignored;
  if (config.contains("quantization_config")) return {};
  for (const auto& [name, method] : {std::pair{"quantize_config.json", "gptq"}, {"quant_config.json", "awq"}}) {
    const fs::path path = folder / name;
    if (!fs::exists(path, ignored)) continue;
    MILLRACE_TRY(Json quantization, read_config(path));
    if (!quantization.contains("quant_method")) quantization["quant_method"] = method;
    for (const auto& [theirs, ours] : {std::pair{"w_bit", "bits"}, {"q_group_size", "group_size"}})
      if (quantization.contains(theirs) && !quantization.contains(ours)) quantization[ours] = quantization[theirs];
    config["quantization_config"] = std::move(quantization);
    return {};
  }
  return {};
}

}  // namespace

Result<ModelFiles> open_huggingface_heads(const std::string& path) {
  ModelFiles heads;
  heads.kind = ModelFiles::Kind::huggingface;
  heads.path = path;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return Error::corrupt(fmt::format("{}: no such file or folder", path));
  const fs::path config_path = model_folder(path) / "config.json";
  MILLRACE_TRY(Json config, read_config(config_path));
  MILLRACE_TRY_VOID(check_quantization(config, config_path));
  MILLRACE_TRY_VOID(open_safetensors_weights(heads, path));
  heads.config = std::make_shared<const Json>(std::move(config));
  return heads;
}

Result<ModelFiles> open_huggingface(const std::string& path) {
  fs::path given(path);
  fs::path folder = model_folder(path);
  std::string config_path = folder / "config.json";
  ModelFiles model;
  model.kind = ModelFiles::Kind::huggingface;
  model.path = path;
  MILLRACE_TRY(Json config, read_config(config_path));
  MILLRACE_TRY(model.architecture, read_architecture(config, config_path));
  MILLRACE_TRY_VOID(add_modelopt_config(folder, config));
  MILLRACE_TRY_VOID(add_quantize_config(folder, config));
  MILLRACE_TRY_VOID(check_quantization(config, config_path));
  MILLRACE_TRY_VOID(open_safetensors_weights(model, given));
  MILLRACE_TRY_VOID(attach_fp8_scales(model, config));
  MILLRACE_TRY_VOID(unpack_mlx_affine(model, config));
  MILLRACE_TRY_VOID(unpack_quantized(model, config));
  MILLRACE_TRY_VOID(unpack_grouped_rows(model, config));
  MILLRACE_TRY_VOID(unpack_interleaved_experts(model));
  MILLRACE_TRY_VOID(read_huggingface_tokenizer(model, folder, config));
  MILLRACE_TRY_VOID(read_chat_templates(model, folder));
  MILLRACE_TRY_VOID(read_generation_config(model, folder));
  model.config = std::make_shared<const Json>(std::move(config));
  return model;
}

}  // namespace millrace
