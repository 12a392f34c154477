#include "config_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "arguments.h"
#include "hub/short_names.h"

namespace millrace {
namespace {

std::string_view toml_trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::string toml_unquoted(std::string_view text) {
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front())
    text = text.substr(1, text.size() - 2);
  return std::string(text);
}

[[noreturn]] void refuse_config(const std::string& message) {
  throw CLI::ConfigError(message, CLI::ExitCodes::ConfigError);
}

std::vector<std::string> keys_of(const CLI::App& command) {
  std::vector<std::string> out;
  for (const CLI::Option* option : all_options(command))
    for (const std::string& name : option->get_lnames()) out.push_back(name);
  return out;
}

const CLI::Option* option_of_key(const CLI::App& command, const std::string& key) {
  for (const CLI::Option* option : all_options(command))
    if (option->check_name("--" + key) || (key.size() == 1 && option->check_name("-" + key))) return option;
  return nullptr;
}

}  // namespace

std::map<std::pair<std::string, std::string>, int> toml_lines(std::string_view text) {
  std::map<std::pair<std::string, std::string>, int> out;
  std::string table;
  for (int line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view one = toml_trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (one.empty() || one.front() == '#') continue;
    if (one.front() == '[' && one.back() == ']') {
      table = toml_unquoted(toml_trimmed(one.substr(1, one.size() - 2)));
      out.emplace(std::pair(table, ""), line);
    } else {
      out.emplace(std::pair(table, toml_unquoted(toml_trimmed(one.substr(0, one.find('='))))), line);
    }
  }
  return out;
}

std::vector<std::string> config_places() {
  std::vector<std::string> out;
  if (const std::filesystem::path folder = user_config_folder(); !folder.empty())
    out.push_back((folder / "config.toml").string());
  out.push_back("/etc/millrace/config.toml");
  return out;
}

std::string default_config() {
  for (const std::string& place : config_places()) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(place, ignored)) return place;
  }
  return "";
}

std::string flag_of_key(std::string key) {
  std::ranges::replace(key, '_', '-');
  return key;
}

std::string ConfigFile::path() const {
  const CLI::Option* option = app_.get_config_ptr();
  if (!option) return "the config file";
  return option->results().empty() ? default_config() : option->results().back();
}

std::vector<CLI::ConfigItem> ConfigFile::from_config(std::istream& input) const {
  const std::string text{std::istreambuf_iterator<char>(input), {}};
  const auto lines = toml_lines(text);
  const auto place = [&](const std::string& table, const std::string& key) {
    const auto found = lines.find({table, key});
    return found == lines.end() ? path() : fmt::format("{}:{}", path(), found->second);
  };
  std::istringstream again(text);
  std::vector<CLI::ConfigItem> found = CLI::ConfigTOML::from_config(again);
  std::vector<std::string> commands;
  for (const CLI::App* one : app_.get_subcommands([](const CLI::App*) { return true; }))
    commands.push_back(one->get_name());
  for (CLI::ConfigItem& item : found) {
    if (item.parents.empty())
      refuse_config(fmt::format("{}: {}: is in no table; each command is a table, such as [run]", place("", item.name),
                                item.name));
    const std::string& table = item.parents.front();
    if (std::ranges::find(commands, table) == commands.end())
      refuse_config(fmt::format("{}: [{}]: no such command{}", place(table, ""), table, suggestion(table, commands)));
    if (item.name == "++" || item.name == "--") continue;
    const CLI::App* command = app_.get_subcommand(table);
    const std::string where = place(table, item.name), written = item.name;
    if (!option_of_key(*command, item.name)) item.name = flag_of_key(item.name);
    const CLI::Option* option = option_of_key(*command, item.name);
    if (!option)
      refuse_config(
          fmt::format("{}: [{}] {}: no such flag{}", where, table, written, suggestion(item.name, keys_of(*command))));
    // The command line is parsed before, and its values take precedence.
    if (option->count() == 0) places_[{table, option->get_name()}] = fmt::format("{}: [{}] {}", where, table, written);
  }
  return found;
}

std::string ConfigFile::place_of(const std::string& command, const std::string& flag) const {
  const auto found = places_.find({command, flag});
  return found == places_.end() ? "" : found->second;
}

bool on_command_line(const CLI::App& command, const std::string& flag) {
  const CLI::Option* option = command.get_option_no_throw(flag);
  if (!option || option->count() == 0) return false;
  const auto config = std::dynamic_pointer_cast<ConfigFile>(command.get_config_formatter());
  return !config || config->place_of(command.get_name(), option->get_name()).empty();
}

}  // namespace millrace
