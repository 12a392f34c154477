#include "models/unread_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

namespace millrace {
namespace {

bool is_vision(std::string_view name) {
  constexpr std::array<std::string_view, 9> kPrefixes = {"v.",
                                                         "mm.",
                                                         "visual.",
                                                         "model.visual.",
                                                         "vision_tower.",
                                                         "model.vision_tower.",
                                                         "vision_model.",
                                                         "multi_modal_projector.",
                                                         "model.multi_modal_projector."};
  return std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// Number of the layer that the tensor belongs to; -1: none.
int64_t layer_of(std::string_view name) {
  for (const std::string_view prefix : {"blk.", "model.layers.", "model.language_model.layers."}) {
    if (!name.starts_with(prefix)) continue;
    int64_t layer = -1;
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(), layer);
    return layer;
  }
  return -1;
}

}  // namespace

std::string unread_tensors(const ModelFiles& files, int64_t layers) {
  int64_t vision = 0, predictions = 0;
  for (const StoredTensor& stored : files.tensors) {
    const std::string_view name = stored.name;
    vision += is_vision(name);
    predictions += name.starts_with("mtp.") || name.starts_with("model.mtp.") || layer_of(name) >= layers;
  }
  std::string text;
  if (vision > 0) text = fmt::format("{} tensors of a vision part, because prompts are text", vision);
  if (predictions > 0)
    text += fmt::format("{}{} tensors of layers that predict further tokens, which only the drafter mtp reads",
                        text.empty() ? "" : "; ", predictions);
  return text.empty() ? text : fmt::format("{}: ignores {}", files.path, text);
}

}  // namespace millrace
