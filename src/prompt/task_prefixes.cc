#include "prompt/task_prefixes.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/ordered_json.h"
#include "loader/model_folder.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxPrefixFile = 1 << 20;  // bytes

}  // namespace

Result<TaskPrefixes> TaskPrefixes::read(const ModelFiles& files) {
  TaskPrefixes out;
  std::error_code ignored;
  const fs::path path = model_folder(files.path) / "config_sentence_transformers.json";
  if (files.kind != ModelFiles::Kind::huggingface || !fs::exists(path, ignored)) return out;
  MILLRACE_TRY(const nlohmann::ordered_json config, read_json_object(path, {.bytes = kMaxPrefixFile}));
  if (const auto prompts = config.find("prompts"); prompts != config.end() && prompts->is_object())
    for (const auto& [task, prefix] : prompts->items()) {
      if (!prefix.is_string())
        return Error::corrupt(fmt::format("{}: prompts: {} is not a string", path.string(), task));
      out.prefixes_.emplace_back(task, prefix.get<std::string>());
    }
  const auto chosen = config.find("default_prompt_name");
  if (chosen == config.end() || !chosen->is_string()) return out;
  out.default_ = chosen->get<std::string>();
  if (!out.find(std::nullopt).ok())
    return Error::corrupt(
        fmt::format("{}: default_prompt_name is '{}', which prompts lacks", path.string(), out.default_));
  return out;
}

Result<std::string> TaskPrefixes::find(const std::optional<std::string>& task) const {
  const std::string& name = task ? *task : default_;
  if (name.empty() && !task) return std::string();
  const auto found = std::ranges::find(prefixes_, name, &std::pair<std::string, std::string>::first);
  if (found != prefixes_.end()) return found->second;
  std::string known;
  for (const auto& [one, prefix] : prefixes_) known += (known.empty() ? "" : ", ") + one;
  return Error::user(fmt::format("prompt name: the model has no prompt '{}'; {}", name,
                                 known.empty() ? "its files name none" : "it has " + known));
}

}  // namespace millrace
