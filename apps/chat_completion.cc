#include "chat_completion.h"

#include <algorithm>
#include <filesystem>

#include "chat_commands.h"
#include "chat_set.h"
#include "input.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> beginning_with(std::vector<std::string> words, const std::string& beginning) {
  std::erase_if(words, [&](const std::string& word) { return !word.starts_with(beginning); });
  std::ranges::sort(words);
  return words;
}

// Files and folders, written as the user began: "~/" stays.
std::vector<std::string> paths_for(const std::string& begun) {
  const size_t slash = begun.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : begun.substr(0, slash + 1);
  const std::string real = folder.empty() ? "." : at_home(folder);
  std::vector<std::string> out;
  std::error_code failed;
  for (fs::directory_iterator at(real, failed), end; !failed && at != end; at.increment(failed)) {
    std::error_code ignored;
    const std::string name = at->path().filename().string();
    if (name.starts_with('.') && !begun.substr(folder.size()).starts_with('.')) continue;
    out.push_back(folder + name + (at->is_directory(ignored) ? "/" : ""));
  }
  return beginning_with(std::move(out), begun);
}

}  // namespace

LineChoices complete_chat(const std::string& line) {
  if (!line.starts_with('/') || line.starts_with("//")) return {};
  const size_t space = line.find(' ');
  if (space == std::string::npos) return {0, beginning_with(chat_command_names(), line)};
  const std::string command = line.substr(0, space), word = line.substr(space + 1);
  if (command == "/save" || command == "/load" || command == "/read") return {space + 1, paths_for(word)};
  if (command == "/show")
    return {space + 1, beginning_with({"info", "license", "modelfile", "parameters", "system", "template"}, word)};
  if (command != "/set" || word.find(' ') != std::string::npos) return {};
  return {space + 1, beginning_with(chat_setting_names(), word)};
}

}  // namespace millrace
