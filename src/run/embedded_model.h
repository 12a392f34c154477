// The models that are linked into the binary (models/*.gguf, see cmake/EmbedModels.cmake).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace millrace {

struct EmbeddedModel {
  std::string_view name;           // "millrace-stories"
  std::span<const uint8_t> image;  // a GGUF file
};

// The first one is the default model. Empty in builds without models.
std::span<const EmbeddedModel> embedded_models();

}  // namespace millrace
