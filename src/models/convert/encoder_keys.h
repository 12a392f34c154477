// Keys of an encoder's GGUF file that say how hidden states become a vector or scores, and the files of a folder that
// say the same.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/convert/conversion.h"

namespace millrace {

// Returns the files and folders of sentence-transformers next to a model's weights: those with fixed names, and those
// of its modules. Errors: as read_modules.
Result<std::vector<std::filesystem::path>> embedding_files(const std::filesystem::path& folder);

// Adds the keys to `keys`, with `prefix` before their names, and notes what is lost. Errors: unsupported (a property of
// the folder that has no key).
Result<void> add_encoder_keys(const ConversionInput& input, const std::string& prefix, nlohmann::ordered_json& keys,
                              ConvertReport& report);

}  // namespace millrace
