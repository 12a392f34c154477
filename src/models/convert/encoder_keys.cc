#include "models/convert/encoder_keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ordered_json.h"
#include "loader/model_folder.h"
#include "models/config_reader.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Returns true if sentence-transformers runs layers behind the pooling.
bool has_dense_modules(const std::vector<FolderModule>& modules) {
  return std::ranges::any_of(modules, [](const FolderModule& one) { return one.type.ends_with(".Dense"); });
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

Result<std::vector<fs::path>> embedding_files(const fs::path& folder) {
  MILLRACE_TRY(const std::vector<FolderModule> modules, read_modules(folder));
  std::vector<std::string> names = {"modules.json", "sentence_bert_config.json", "config_sentence_transformers.json",
                                    "1_Pooling"};
  for (const FolderModule& module : modules)
    if (!module.path.empty() && std::ranges::find(names, module.path) == names.end()) names.push_back(module.path);
  std::vector<fs::path> out;
  std::error_code ignored;
  for (const std::string& name : names)
    if (fs::exists(folder / name, ignored)) out.push_back(folder / name);
  return out;
}

Result<void> add_encoder_keys(const ConversionInput& input, const std::string& prefix, Json& keys,
                              ConvertReport& report) {
  std::error_code ignored;
  const std::string& path = input.files.path;
  const fs::path folder = model_folder(path);
  const Json& config = *input.files.config;
  const bool ranks = input.files.architecture.ends_with("ForSequenceClassification");
  MILLRACE_TRY(const std::vector<FolderModule> modules, read_modules(folder));
  ConfigReader head(config, path + "/config.json");
  const std::string row = head.text_or("classifier_pooling", "cls");
  MILLRACE_TRY_VOID(head.status());
  if (has_dense_modules(modules))
    return Error::unsupported(
        fmt::format("{}: the dense layers behind the pooling (modules.json) cannot be converted", path));
  if (ranks && input.arch->name == "modern-bert" && row != "mean")
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
