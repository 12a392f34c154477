// The models that are linked into the binary (models/*.gguf, see cmake/EmbedModels.cmake), and their names.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace millrace {

struct EmbeddedModel {
  std::string_view name;           // name of its file: "millrace-stories-6m"
  std::string_view short_name;     // without "millrace-" and its size: "stories"
  std::span<const uint8_t> image;  // a GGUF file
};

// Name of the model that runs if none is named; in builds without it the first one that is no draft model runs.
inline constexpr std::string_view kDefaultModel = "lab";

// Empty in builds without models.
std::span<const EmbeddedModel> embedded_models();

// `name`: either of its names, or "millrace-" and the short one; "": the default one. A path of a file is none of them.
// Null: there is no such model.
const EmbeddedModel* find_embedded_model(std::string_view name);

std::string embedded_model_names();  // the short ones: "stories, stories-draft"

}  // namespace millrace
