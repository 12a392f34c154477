#include "loader/quantized/quantized.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/ordered_json.h"
#include "loader/file_text.h"
#include "loader/hf_weights.h"
#include "loader/quantized/methods.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

const Json* quantization_of(const Json& config) {
  const auto found = config.find("quantization_config");
  return found != config.end() && found->is_object() ? &*found : nullptr;
}

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

enum class Method : uint8_t { none, fp8, gptq, awq, compressed_tensors, bitsandbytes, hqq, modelopt, aqlm, quip_sharp };

Method method_of(const Json& config) {
  const Json* quantization = quantization_of(config);
  if (!quantization) return config.contains("quip_params") ? Method::quip_sharp : Method::none;
  const std::string method = text_of(*quantization, "quant_method"), format = text_of(*quantization, "format");
  if (method == "fp8" || method == "fbgemm_fp8") return Method::fp8;
  if (method == "gptq") return Method::gptq;
  if (method == "awq") return Method::awq;
  if (method == "bitsandbytes") return Method::bitsandbytes;
  if (method == "hqq") return Method::hqq;
  if (method == "modelopt") return Method::modelopt;
  if (method == "aqlm") return Method::aqlm;
  if (method != "compressed-tensors") return Method::none;
  // FP8 matrices have their scales already (hf_weights.h).
  constexpr std::string_view kFp8[] = {"", "float-quantized", "naive-quantized"};
  return std::ranges::find(kFp8, format) == std::end(kFp8) ? Method::compressed_tensors : Method::fp8;
}

constexpr std::string_view kCompressedLayouts[] = {"pack-quantized",       "int-quantized",   "nvfp4-pack-quantized",
                                                   "mxfp4-pack-quantized", "float-quantized", "naive-quantized",
                                                   "mixed-precision"};

// Of mixed-precision files each group of matrices has a layout.
Result<void> check_compressed(const Json& quantization, const std::string& path) {
  const auto check = [&](const std::string& layout) -> Result<void> {
    if (layout.empty() || std::ranges::find(kCompressedLayouts, layout) != std::end(kCompressedLayouts)) return {};
    return Error::unsupported(fmt::format("{}: compressed-tensors layout {} is not supported; supported: {}", path,
                                          quoted_name(layout), fmt::join(kCompressedLayouts, ", ")));
  };
  MILLRACE_TRY_VOID(check(text_of(quantization, "format")));
  const auto groups = quantization.find("config_groups");
  if (groups == quantization.end() || !groups->is_object()) return {};
  for (const auto& [name, group] : groups->items())
    if (group.is_object()) MILLRACE_TRY_VOID(check(text_of(group, "format")));
  return {};
}

// FP8 with scales for a matrix, and NVFP4.
Result<void> check_modelopt(const Json& quantization, const std::string& path) {
  constexpr std::string_view kAlgorithms[] = {"NVFP4", "W4A16_NVFP4", "FP8", "MIXED_PRECISION"};
  const std::string algorithm = text_of(quantization, "quant_algo");
  if (std::ranges::find(kAlgorithms, algorithm) != std::end(kAlgorithms)) return {};
  return Error::unsupported(fmt::format("{}: Model Optimizer's quant_algo {} is not supported; supported: {}", path,
                                        quoted_name(algorithm), fmt::join(kAlgorithms, ", ")));
}

// The tensor of a quantized matrix by which it is found.
const char* marker_of(Method method, std::string_view name) {
  const auto ends = [&](const char* ending) { return name.ends_with(ending) ? ending : nullptr; };
  switch (method) {
    case Method::gptq:
    case Method::awq: return ends(".qweight");
    case Method::compressed_tensors:
      if (const char* packed = ends(".weight_packed")) return packed;
      return ends(".weight");
    case Method::bitsandbytes:
    case Method::modelopt: return ends(".weight");
    case Method::hqq: return ends(".W_q");
    case Method::aqlm: return ends(".codes");
    case Method::quip_sharp: return ends(".Qidxs");
    default: return nullptr;
  }
}

class CheckpointUnpacker {
 public:
  CheckpointUnpacker(ModelFiles& model, const Json& config, Method method)
      : model_(model),
        config_(method == Method::quip_sharp ? config : *quantization_of(config)),
        method_(method),
        absorbed_(model.tensors.size(), false) {}

  Result<void> run() {
    // Tensors that are added stand behind those that are gone through.
    for (size_t i = 0, count = model_.tensors.size(); i < count; ++i) {
      const char* marker = marker_of(method_, model_.tensors[i].name);
      if (!marker) continue;
      const std::string& name = model_.tensors[i].name;
      MILLRACE_TRY_VOID(unpack(i, name.substr(0, name.size() - std::strlen(marker) + 1)));
    }
    absorbed_.resize(model_.tensors.size(), false);
    remove_tensors(model_, absorbed_);
    return {};
  }

 private:
  Result<void> unpack(size_t index, const std::string& prefix) {
    const QuantizedTensors tensors(model_, prefix);
    std::vector<int32_t> order;
    Levels levels;
    switch (method_) {
      case Method::gptq: {
        MILLRACE_TRY(levels, read_gptq(tensors, config_, order));
        absorb(tensors, {"qzeros", "scales", "g_idx"});
        break;
      }
      case Method::awq: {
        MILLRACE_TRY(levels, read_awq(tensors, config_));
        absorb(tensors, {"qzeros", "scales"});
        break;
      }
      case Method::compressed_tensors: {
        if (!tensors.find("weight_scale")) return {};  // not quantized
        if (tensors.find("weight_packed") && model_.tensors[index].type_name == "U8")
          return unpack_float4(index, tensors);
        if (!tensors.find("weight_packed") && model_.tensors[index].type_name != "I8") return {};
        MILLRACE_TRY(levels, read_compressed_tensors(tensors, config_));
        absorb(tensors, {"weight_scale", "weight_zero_point", "weight_shape", "input_scale", "input_zero_point"});
        break;
      }
      case Method::bitsandbytes: {
        if (tensors.find("weight.absmax")) {
          absorb(tensors, {"weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map",
                           "weight.quant_state.bitsandbytes__nf4", "weight.quant_state.bitsandbytes__fp4"});
          return store_bitsandbytes_4bit(model_, tensors);
        }
        if (!tensors.find("SCB")) return {};
        MILLRACE_TRY(levels, read_bitsandbytes_int8(tensors));
        absorb(tensors, {"SCB", "weight_format"});
        break;
      }
      case Method::hqq: {
        absorb(tensors, {"scale", "zero", "shape", "nbits", "group_size", "axis", "packing", "unpack_view_dtype",
                         "view_as_float", "quant_scale", "quant_zero", "compute_dtype", "offload_meta",
                         "encoded_state_dict", "stores_quant_config", "channel_wise", "optimize", "round_zero"});
        MILLRACE_TRY_VOID(store_hqq(model_, tensors, model_.tensors[index]));
        model_.tensors[index].name = prefix + "weight";
        return {};
      }
      case Method::modelopt: {
        absorb(tensors, {"input_scale", "weight_scale_2"});
        return model_.tensors[index].type_name == "U8" ? unpack_float4(index, tensors) : Result<void>();
      }
      case Method::aqlm: return store_aqlm(model_, tensors, model_.tensors[index], config_);
      case Method::quip_sharp:
        absorb(tensors, {"SU", "SV", "Wscale", "codebook_id", "fuse_scales", "scaleWH"});
        return store_quip_sharp(model_, tensors, model_.tensors[index], config_);
      default: return {};
    }
    StoredTensor& matrix = model_.tensors[index];
    matrix.name = prefix + "weight";
    MILLRACE_TRY_VOID(store_levels(model_, matrix, levels));
    return order.empty() ? Result<void>() : add_order(prefix, model_.tensors[index].file, order);
  }

  Result<void> unpack_float4(size_t index, const QuantizedTensors& tensors) {
    if (const StoredTensor* inputs = tensors.find("pre_quant_scale"))
      return Error::unsupported(fmt::format("tensor {}: scales of inputs of NVFP4 cannot be read", inputs->name));
    absorb(tensors, {"weight_scale", "weight_global_scale", "weight_scale_2", "weight_zero_point", "input_scale",
                     "input_global_scale"});
    MILLRACE_TRY_VOID(store_float4(model_, tensors, model_.tensors[index]));
    model_.tensors[index].name = tensors.prefix() + "weight";
    return {};
  }

  void absorb(const QuantizedTensors& tensors, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      const auto found = model_.tensor_index.find(tensors.prefix() + name);
      if (found != model_.tensor_index.end()) absorbed_[found->second] = true;
    }
  }

  Result<void> add_order(const std::string& prefix, size_t file, const std::vector<int32_t>& order) {
    return add_part(model_, prefix + "input_order", file, std::vector<float>(order.begin(), order.end()));
  }

  ModelFiles& model_;
  const Json& config_;
  Method method_;
  std::vector<bool> absorbed_;
};

}  // namespace

Result<void> check_quantization(const Json& config, const std::string& path) {
  const Json* quantization = quantization_of(config);
  if (method_of(config) == Method::quip_sharp) return check_quip_sharp(config, path);
  if (!quantization || !quantization->contains("quant_method")) return {};
  const Method method = method_of(config);
  if (text_of(*quantization, "quant_method") == "compressed-tensors") return check_compressed(*quantization, path);
  if (method == Method::modelopt) return check_modelopt(*quantization, path);
  if (method != Method::none) return {};
  return Error::unsupported(fmt::format(
      "{}: quantization method {} is not supported; supported: fp8, gptq, awq, compressed-tensors, bitsandbytes, "
      "hqq, modelopt, aqlm, MLX affine and QuIP# (quip_params)",
      path, quoted_name(text_of(*quantization, "quant_method"))));
}

Result<void> unpack_quantized(ModelFiles& model, const Json& config) {
  const Method method = method_of(config);
  if (method == Method::none || method == Method::fp8) return {};
  return CheckpointUnpacker(model, config, method).run();
}

}  // namespace millrace
