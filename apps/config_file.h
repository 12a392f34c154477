// The TOML file of --config: a table for each command, whose keys are flags; an underscore in a key is a dash. Errors
// name file, line and key.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace {

// Lines of the keys of a TOML text, by table and key as they are written; the first line is 1.
std::map<std::pair<std::string, std::string>, int> toml_lines(std::string_view text);

// "max_tokens" -> "max-tokens"
std::string flag_of_key(std::string key);

// Returns the paths of the config files that are tried if --config names none, in order: config.toml in
// user_config_folder(), then /etc/millrace/config.toml.
std::vector<std::string> config_places();
// Returns the first path of config_places() that exists; "" if none does.
std::string default_config();

class ConfigFile : public CLI::ConfigTOML {
 public:
  explicit ConfigFile(const CLI::App& app) : app_(app) {}

  // Throws CLI::ConfigError for unknown tables and keys.
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override;

  // "config.toml:3: [run] temp" for a flag that the file set; "": it did not, or the command line set the flag.
  std::string place_of(const std::string& command, const std::string& flag) const;

 private:
  std::string path() const;

  const CLI::App& app_;
  mutable std::map<std::pair<std::string, std::string>, std::string> places_;  // by command and flag
};

// Returns true if the command line sets a flag of a command, rather than the config file. For callbacks of commands:
// both are parsed by then.
bool on_command_line(const CLI::App& command, const std::string& flag);

}  // namespace millrace
