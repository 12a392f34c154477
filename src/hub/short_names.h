// Short names of public models, as users of Ollama type them: "qwen3:0.6b" is a GGUF file of a hub's repository. The
// table is in short_names.cc. A file of the user adds names and replaces those of the table:
//
//     $MILLRACE_SHORT_NAMES, or $XDG_CONFIG_HOME/millrace/short-names.toml, or ~/.config/millrace/short-names.toml
//       # a comment
//       "qwen3:0.6b" = "OWNER/NAME:Q8_0"
//
// The functions read the file at each call. They are thread-safe.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

struct ShortName {
  std::string name;        // "qwen3:0.6b"
  std::string model;       // "OWNER/NAME:QUANT"
  bool latest = false;     // the name without its tag is this model, too
  bool from_user = false;  // the entry is from the user's file
};

// $XDG_CONFIG_HOME/millrace, or ~/.config/millrace; "": neither variable is set.
std::filesystem::path user_config_folder();

// The path of the user's file, which need not exist; "": there is no folder for it.
std::filesystem::path short_names_file();

// Parses the text of a user's file. `path`: named in errors. Errors: user (a line that is no entry).
Result<std::vector<ShortName>> parse_short_names(std::string_view text, const std::string& path);

// Returns the user's entries, then those of the table that they do not replace. Errors: as parse_short_names, and user
// (the file is larger than 1 MiB).
Result<std::vector<ShortName>> short_names();

// Returns "OWNER/NAME:QUANT" for a short name in any case; nullopt: it is none. A tag may end in a quantization:
// "qwen3:0.6b-q8_0". Errors: as short_names.
Result<std::optional<std::string>> find_short_name(std::string_view name);

// Variant that looks in `all`.
std::optional<std::string> find_short_name(std::string_view name, const std::vector<ShortName>& all);

}  // namespace millrace
