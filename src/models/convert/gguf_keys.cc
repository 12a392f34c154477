#include "models/convert/gguf_keys.h"

#include <algorithm>
#include <map>

#include "base/ordered_json.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

// general.file_type: the format of most matrices as a number (frozen).
uint32_t file_type_of(std::string_view format) {
  static const std::map<std::string_view, uint32_t> kTypes = {
      {"f32", 0},    {"f16", 1},    {"q4_0", 2},     {"q4_1", 3},    {"q8_0", 7},     {"q5_0", 8},    {"q5_1", 9},
      {"q2_k", 10},  {"q3_k", 12},  {"q4_k", 15},    {"q5_k", 17},   {"q6_k", 18},    {"iq4_nl", 25}, {"iq4_xs", 30},
      {"bf16", 32},  {"mxfp4", 38}, {"iq2_xxs", 19}, {"iq2_xs", 20}, {"iq3_xxs", 23}, {"iq1_s", 24},  {"iq3_s", 26},
      {"iq2_s", 28}, {"iq1_m", 31}, {"tq1_0", 36},   {"tq2_0", 37},  {"nvfp4", 39},   {"q1_0", 40},   {"q2_0", 41}};
  auto found = kTypes.find(format);
  return found == kTypes.end() ? 1024 : found->second;  // 1024: the reader must guess
}

bool set_array(GgufWriter& writer, const std::string& key, const Json& list) {
  auto all = [&](auto is) { return std::all_of(list.begin(), list.end(), is); };
  if (all([](const Json& v) { return v.is_boolean(); }) && !list.empty()) {
    writer.set_bools(key, list.get<std::vector<bool>>());
  } else if (all([](const Json& v) { return v.is_string(); }) && !list.empty()) {
    writer.set_strings(key, list.get<std::vector<std::string>>());
  } else if (all([](const Json& v) { return v.is_number_integer(); })) {
    const bool fits = all([](const Json& v) {
      return v.is_number_unsigned() ? v.get<uint64_t>() <= INT32_MAX
                                    : v.get<int64_t>() >= INT32_MIN && v.get<int64_t>() <= INT32_MAX;
    });
    if (!fits) return false;
    writer.set_i32s(key, list.get<std::vector<int32_t>>());
  } else if (all([](const Json& v) { return v.is_number(); })) {
    writer.set_f32s(key, list.get<std::vector<float>>());
  } else {
    return false;
  }
  return true;
}

}  // namespace

bool set_json(GgufWriter& writer, const std::string& key, const Json& value) {
  if (value.is_array()) return set_array(writer, key, value);
  if (value.is_boolean()) {
    writer.set_bool(key, value.get<bool>());
  } else if (value.is_string()) {
    writer.set_string(key, value.get<std::string>());
  } else if (value.is_number_float()) {
    writer.set_f32(key, value.get<float>());
  } else if (value.is_number_unsigned() || (value.is_number_integer() && value.get<int64_t>() >= 0)) {
    const auto number = value.get<uint64_t>();
    if (number <= UINT32_MAX)
      writer.set_u32(key, static_cast<uint32_t>(number));
    else
      writer.set_u64(key, number);
  } else if (value.is_number_integer() && value.get<int64_t>() >= INT32_MIN) {
    writer.set_i32(key, value.get<int32_t>());
  } else {
    return false;
  }
  return true;
}

void set_file_type(GgufWriter& writer, const std::vector<OutputTensor>& tensors) {
  std::map<std::string_view, int64_t> values;
  for (const OutputTensor& tensor : tensors)
    if (tensor.dims.size() > 1)
      values[tensor.format->name] += tensor.bytes() / tensor.format->block_bytes * tensor.format->block_values;
  set_file_type(writer, values);
}

void set_file_type(GgufWriter& writer, const std::map<std::string_view, int64_t>& values) {
  auto most =
      std::max_element(values.begin(), values.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  writer.set_u32("general.file_type", most == values.end() ? 0 : file_type_of(most->first));
  writer.set_u32("general.quantization_version", 2);
}

void set_general_keys(GgufWriter& writer, std::string_view architecture, const std::string& name,
                      const std::vector<OutputTensor>& tensors) {
  writer.set_string("general.architecture", architecture);
  writer.set_string("general.type", "model");
  writer.set_string("general.name", name);
  set_file_type(writer, tensors);
}

void set_generation_keys(GgufWriter& writer, const ModelFiles& files) {
  const GenerationDefaults& defaults = files.generation;
  auto put = [&](const char* key, const std::optional<double>& value) {
    if (value) writer.set_f32(key, static_cast<float>(*value));
  };
  put("general.sampling.temp", defaults.temperature);
  put("general.sampling.top_p", defaults.top_p);
  put("general.sampling.min_p", defaults.min_p);
  put("general.sampling.penalty_repeat", defaults.repetition_penalty);
  if (defaults.top_k && *defaults.top_k >= INT32_MIN && *defaults.top_k <= INT32_MAX)
    writer.set_i32("general.sampling.top_k", static_cast<int32_t>(*defaults.top_k));
}

void set_template_keys(GgufWriter& writer, const ModelFiles& files) {
  if (!files.chat_template.empty()) writer.set_string("tokenizer.chat_template", files.chat_template);
  std::vector<std::string> names;
  for (const auto& [name, text] : files.named_templates) names.push_back(name);
  std::ranges::sort(names);
  for (const std::string& name : names)
    writer.set_string("tokenizer.chat_template." + name, files.named_templates.at(name));
  if (!names.empty()) writer.set_strings("tokenizer.chat_templates", names);
}

void set_tokenizer_arrays(GgufWriter& writer, const TokenizerSpec& spec) {
  std::vector<int32_t> types;
  for (TokenType type : spec.types) types.push_back(static_cast<int32_t>(type));
  writer.set_strings("tokenizer.ggml.tokens", spec.tokens);
  if (!spec.scores.empty()) writer.set_f32s("tokenizer.ggml.scores", spec.scores);
  if (!types.empty()) writer.set_i32s("tokenizer.ggml.token_type", types);
  if (!spec.merges.empty()) writer.set_strings("tokenizer.ggml.merges", spec.merges);
  if (!spec.precompiled_charsmap.empty())
    writer.set_bytes("tokenizer.ggml.precompiled_charsmap", spec.precompiled_charsmap);
}

}  // namespace millrace
