#include "run/skip_choice.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include "base/json_text.h"
#include "base/pending_file.h"
#include "models/mixers/mixer.h"

namespace millrace {
namespace {

constexpr const char* kSkipFile = "millrace skip set";
constexpr int64_t kSkipFileBytes = 1 << 20;
constexpr size_t kHashedBytes = 1 << 20;

Error not_layers(std::string_view text) {
  return Error::user(fmt::format("expected layers such as 3+7-9, got '{}'", text));
}

Result<int64_t> layer_of(std::string_view item, std::string_view text, int64_t layers) {
  int64_t layer = 0;
  const auto [end, problem] = std::from_chars(item.data(), item.data() + item.size(), layer);
  if (problem != std::errc() || end != item.data() + item.size() || item.empty() || layer < 0) return not_layers(text);
  if (layer >= layers) return Error::user(fmt::format("layer {}: the model has layers 0 to {}", layer, layers - 1));
  return layer;
}

Result<std::string> read_skip_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  for (char c; file && static_cast<int64_t>(text.size()) <= kSkipFileBytes && file.get(c);) text += c;
  if (text.empty()) return Error::corrupt(fmt::format("{}: cannot be read, or is empty", path));
  if (static_cast<int64_t>(text.size()) > kSkipFileBytes)
    return Error::corrupt(fmt::format("{}: is longer than any skip set", path));
  return text;
}

Result<std::vector<uint8_t>> listed_layers(const nlohmann::ordered_json& json, const char* key, int64_t layers,
                                           const std::string& path) {
  std::vector<uint8_t> out(static_cast<size_t>(layers), 0);
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array()) return Error::corrupt(fmt::format("{}: {}: no list", path, key));
  for (const auto& one : *found) {
    if (!one.is_number_integer() || one.get<int64_t>() < 0 || one.get<int64_t>() >= layers)
      return Error::corrupt(fmt::format("{}: {}: expected layers from 0 to {}", path, key, layers - 1));
    out[one.get<size_t>()] = 1;
  }
  return out;
}

Result<SkippedBlocks> read_skips(const std::string& path, const LanguageModel& model) {
  MILLRACE_TRY(const std::string text, read_skip_file(path));
  const auto json = parse_json(text);
  if (!json.is_object() || json.value("file", nlohmann::ordered_json()) != kSkipFile)
    return Error::corrupt(fmt::format("{}: is no skip set; millrace draft-search makes one", path));
  if (json.value("model", nlohmann::ordered_json()) != model_identity(model))
    return Error::user(
        fmt::format("{}: is of another model than {}; run millrace draft-search on this one", path, model.info().name));
  const int64_t layers = model.parts().model->spec().layer_count();
  SkippedBlocks out;
  MILLRACE_TRY(out.attention, listed_layers(json, "attention", layers, path));
  MILLRACE_TRY(out.mlp, listed_layers(json, "mlp", layers, path));
  return out;
}

std::vector<int64_t> indices(const std::vector<uint8_t>& listed) {
  std::vector<int64_t> out;
  for (size_t i = 0; i < listed.size(); ++i)
    if (listed[i]) out.push_back(static_cast<int64_t>(i));
  return out;
}

Result<std::vector<uint8_t>> given_layers(const char* option, const std::string& text, int64_t layers) {
  auto parsed = parse_layers(text, layers);
  if (!parsed.ok()) return Error::user(fmt::format("drafter self: {}: {}", option, parsed.error().message));
  return parsed;
}

}  // namespace

Result<std::vector<uint8_t>> parse_layers(std::string_view text, int64_t layers) {
  std::vector<uint8_t> out(static_cast<size_t>(layers), 0);
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto plus = rest.find('+');
    const std::string_view item = rest.substr(0, plus);
    rest = plus == std::string_view::npos ? std::string_view() : rest.substr(plus + 1);
    if (plus != std::string_view::npos && rest.empty()) return not_layers(text);
    const auto dash = item.find('-');
    MILLRACE_TRY(const int64_t first, layer_of(item.substr(0, dash), text, layers));
    int64_t last = first;
    if (dash != std::string_view::npos) {
      MILLRACE_TRY(last, layer_of(item.substr(dash + 1), text, layers));
    }
    if (last < first) return not_layers(text);
    std::fill(out.begin() + first, out.begin() + last + 1, uint8_t{1});
  }
  return out;
}

std::string layers_text(const std::vector<uint8_t>& listed) {
  std::string out;
  for (size_t i = 0; i < listed.size(); ++i) {
    if (!listed[i]) continue;
    size_t end = i;
    while (end + 1 < listed.size() && listed[end + 1]) ++end;
    out += fmt::format("{}{}", out.empty() ? "" : "+", i);
    if (end > i) out += fmt::format("-{}", end);
    i = end;
  }
  return out;
}

SkippedBlocks default_skips(const ArchSpec& spec) {
  const int64_t layers = spec.layer_count();
  SkippedBlocks out{std::vector<uint8_t>(static_cast<size_t>(layers), 0),
                    std::vector<uint8_t>(static_cast<size_t>(layers), 0)};
  for (int64_t i = layers / 4 + 1; i < layers - layers / 4; i += 2)
    out.attention[static_cast<size_t>(i)] = out.mlp[static_cast<size_t>(i)] = 1;
  return out;
}

std::string model_identity(const LanguageModel& model) {
  std::string text;
  for (const auto& file : model.parts().files->files) {
    const std::span<const uint8_t> bytes = file->bytes();
    const size_t hashed = std::min(bytes.size(), kHashedBytes);
    text += fmt::format("{}{} bytes {:016x}{:016x}", text.empty() ? "" : ", ", bytes.size(),
                        XXH3_64bits(bytes.data(), hashed), XXH3_64bits(bytes.data() + bytes.size() - hashed, hashed));
  }
  return text;
}

Result<SkippedBlocks> choose_skips(const SkipChoice& choice, const LanguageModel& model) {
  const ArchSpec& spec = model.parts().model->spec();
  if (choice.first > 0) {
    const int64_t layers = spec.layer_count();
    if (choice.first >= layers)
      return Error::user(
          fmt::format("drafter layerskip: exit: must be less than the model's {} layers, is {}", layers, choice.first));
    std::vector<uint8_t> left_out(static_cast<size_t>(layers), 0);
    std::fill(left_out.begin() + choice.first, left_out.end(), uint8_t{1});
    return SkippedBlocks{left_out, left_out};
  }
  if (!choice.file.empty()) {
    auto read = read_skips(choice.file, model);
    if (!read.ok()) return Error{read.error().kind, "drafter self: skip: " + read.error().message};
    return read;
  }
  if (choice.attention.empty() && choice.mlp.empty()) return default_skips(spec);
  SkippedBlocks out;
  MILLRACE_TRY(out.attention, given_layers("attn", choice.attention, spec.layer_count()));
  MILLRACE_TRY(out.mlp, given_layers("mlp", choice.mlp, spec.layer_count()));
  return out;
}

Result<void> write_skips(const std::string& path, const SkippedBlocks& skipped, const LanguageModel& model) {
  const nlohmann::ordered_json json = {{"file", kSkipFile},
                                       {"model", model_identity(model)},
                                       {"layers", model.parts().model->spec().layer_count()},
                                       {"attention", indices(skipped.attention)},
                                       {"mlp", indices(skipped.mlp)}};
  return write_whole_file(path, json.dump() + "\n");
}

}  // namespace millrace
