#include "models/convert/encoder_keys.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "base/ordered_json.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::streamsize kMaxModules = 1 << 16;  // bytes of modules.json

// Returns true if the files of sentence-transformers list layers behind the pooling.
bool has_dense_modules(const fs::path& folder) {
  std::ifstream file(folder / "modules.json", std::ios::binary);
  std::string text(kMaxModules, '\0');
  file.read(text.data(), kMaxModules);
  text.resize(static_cast<size_t>(file.gcount()));
  return text.find(".Dense\"") != std::string::npos;
}

// The names of a ranking head's labels; empty unless all of several labels have one.
Json label_names(const Json& config) {
  const auto labels = config.find("id2label");
  Json names = Json::array();
  if (labels == config.end() || !labels->is_object() || labels->size() < 2) return names;
  for (size_t i = 0; i < labels->size(); ++i)
    if (const auto one = labels->find(std::to_string(i)); one != labels->end() && one->is_string())
      names.push_back(*one);
  return names.size() == labels->size() ? names : Json::array();
}

}  // namespace

Result<void> add_encoder_keys(const ConversionInput& input, const std::string& prefix, Json& keys,
                              ConvertReport& report) {
  std::error_code ignored;
  const std::string& path = input.files.path;
  const fs::path folder = fs::is_directory(path, ignored) ? fs::path(path) : fs::path(path).parent_path();
  const Json& config = *input.files.config;
  const bool ranks = input.files.architecture.ends_with("ForSequenceClassification");
  if (has_dense_modules(folder))
    return Error::unsupported(
        fmt::format("{}: the dense layers behind the pooling (modules.json) cannot be converted", path));
  if (ranks && input.arch->name == "modern-bert" && config.value("classifier_pooling", "cls") != "mean")
    return Error::unsupported(
        fmt::format("{}: classifier_pooling 'cls' has no key in GGUF, whose readers take the mean", path));
  if (fs::exists(folder / "config_sentence_transformers.json", ignored))
    report.notes.emplace_back("GGUF has no key for the prefixes of texts in config_sentence_transformers.json");
  if (input.pooling_type) keys[prefix + "pooling_type"] = *input.pooling_type;
  if (const Json names = label_names(config); ranks && !names.empty())
    keys[prefix + "classifier.output_labels"] = names;
  return {};
}

}  // namespace millrace
