// The file of NpuScales:
//   {"file": "millrace NPU scales", "model": "...", "inputs": [{"layer": 0, "input": "attn_in", "maxima": [...]}]}
#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "base/json_text.h"
#include "base/pending_file.h"
#include "kernels/int8_matrix.h"
#include "models/npu/options.h"

namespace millrace {
namespace {

using ScalesJson = nlohmann::ordered_json;

constexpr const char* kScalesKind = "millrace NPU scales";
constexpr int64_t kMaxScalesBytes = 256 << 20;
constexpr int64_t kMaxScaleLayers = 4096;

Result<std::string> read_scales_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return Error::user(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  const int64_t bytes = file.tellg();
  if (bytes < 0 || bytes > kMaxScalesBytes)
    return Error::corrupt(fmt::format("{}: is longer than any NPU scales", path));
  std::string text(static_cast<size_t>(bytes), '\0');
  file.seekg(0);
  file.read(text.data(), bytes);
  if (file.gcount() != bytes) return Error::user(fmt::format("{}: cannot be read", path));
  return text;
}

Result<std::vector<float>> maxima_of(const ScalesJson& values) {
  if (!values.is_array() || values.empty() || std::ssize(values) > kMaxInt8Columns)
    return Error::corrupt(fmt::format("maxima: expected 1 to {} numbers", kMaxInt8Columns));
  std::vector<float> out;
  out.reserve(values.size());
  for (const ScalesJson& one : values) {
    const float value = one.is_number() ? one.get<float>() : -1;
    if (!(value >= 0) || !std::isfinite(value)) return Error::corrupt("maxima: expected finite numbers of at least 0");
    out.push_back(value);
  }
  return out;
}

Result<void> add_input(const ScalesJson& json, NpuScales& scales) {
  if (!json.is_object()) return Error::corrupt("expected an object");
  const ScalesJson layer = json.value("layer", ScalesJson()), name = json.value("input", ScalesJson());
  if (!layer.is_number_integer() || layer < 0 || layer >= kMaxScaleLayers)
    return Error::corrupt("layer: expected a number");
  const auto site = name.is_string() ? kNpuSiteNames.find(name.get<std::string>()) : std::nullopt;
  if (!site) return Error::corrupt("input: expected attn_in, attn_out, ffn_in or ffn_out");
  const bool shared = json.value("shared", ScalesJson()) == true;
  MILLRACE_TRY(auto maxima, maxima_of(json.value("maxima", ScalesJson())));
  scales.maxima[{layer.get<int32_t>(), *site, shared ? LinearId::kShared : LinearId::kNoExpert}] = std::move(maxima);
  return {};
}

}  // namespace

bool npu_input_of(const LinearId& id, NpuInput& input) {
  if (id.layer < 0 || id.expert >= 0) return false;
  input.layer = id.layer;
  input.expert = id.expert;
  switch (id.kind) {
    case LinearKind::q:
    case LinearKind::k:
    case LinearKind::v: input.site = NpuSite::attention_in; return true;
    case LinearKind::output: input.site = NpuSite::attention_out; return true;
    case LinearKind::gate:
    case LinearKind::up: input.site = NpuSite::mlp_in; return true;
    case LinearKind::down: input.site = NpuSite::mlp_out; return true;
    default: return false;
  }
}

Result<NpuScales> read_npu_scales(const std::string& path) {
  MILLRACE_TRY(const std::string text, read_scales_text(path));
  const ScalesJson json = parse_json(text);
  if (!json.is_object() || json.value("file", ScalesJson()) != kScalesKind)
    return Error::corrupt(fmt::format("{}: has no NPU scales; millrace npu-scales makes such a file", path));
  const ScalesJson inputs = json.value("inputs", ScalesJson());
  if (!inputs.is_array() || inputs.empty()) return Error::corrupt(fmt::format("{}: inputs: no list", path));
  NpuScales out;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (auto added = add_input(inputs[i], out); !added.ok())
      return Error::corrupt(fmt::format("{}: inputs[{}]: {}", path, i, added.error().message));
  return out;
}

Result<void> write_npu_scales(const std::string& path, const NpuScales& scales, const std::string& model) {
  ScalesJson inputs = ScalesJson::array();
  for (const auto& [input, maxima] : scales.maxima) {
    ScalesJson one = {{"layer", input.layer}, {"input", kNpuSiteNames[input.site]}};
    if (input.expert == LinearId::kShared) one["shared"] = true;
    one["maxima"] = maxima;
    inputs.push_back(std::move(one));
  }
  const ScalesJson json = {{"file", kScalesKind}, {"model", model}, {"inputs", std::move(inputs)}};
  return write_whole_file(path, json.dump() + "\n");
}

}  // namespace millrace
