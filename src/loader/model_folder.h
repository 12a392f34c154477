// Finds the folder of a Hugging Face model, and reads its JSON files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "loader/json_check.h"

namespace millrace {

// Returns `path` if it is a folder, otherwise the folder of the file that it names.
std::filesystem::path model_folder(const std::string& path);

// Maps a file and parses it. Errors: corrupt (missing, unreadable, outside `limits`, no object); the message has the
// path.
Result<nlohmann::ordered_json> read_json_object(const std::filesystem::path& path, const JsonLimits& limits = {});

// A module that sentence-transformers runs: its class, and its folder in the model's; "": the model's folder itself.
struct FolderModule {
  std::string type;  // "sentence_transformers.models.Dense"
  std::string path;  // "2_Dense"
};

// Returns the modules of modules.json; none if there is no such file. Errors: corrupt (as read_json_object; a path that
// leaves the folder).
Result<std::vector<FolderModule>> read_modules(const std::filesystem::path& folder);

}  // namespace millrace
