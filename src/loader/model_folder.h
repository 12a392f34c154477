// Where the folder of a Hugging Face model is, and its JSON files.
#pragma once

#include <filesystem>
#include <string>

#include "loader/json_check.h"

namespace millrace {

// Returns `path` if it is a folder, otherwise the folder of the file that it names.
std::filesystem::path model_folder(const std::string& path);

// Maps a file and parses it. Errors: corrupt (missing, unreadable, outside `limits`, no object); the message has the
// path.
Result<nlohmann::ordered_json> read_json_object(const std::filesystem::path& path, const JsonLimits& limits = {});

}  // namespace millrace
