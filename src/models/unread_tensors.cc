#include "models/unread_tensors.h"

#include <fmt/format.h>

#include <string_view>

#include "models/unknown/tensor_kinds.h"

namespace millrace {
std::string unread_tensors(const ModelFiles& files, int64_t layers) {
  int64_t media = 0, predictions = 0;
  for (const StoredTensor& stored : files.tensors) {
    const std::string_view name = stored.name;
    if (is_media_tensor(name))
      ++media;
    else
      predictions += name.starts_with("mtp.") || name.starts_with("model.mtp.") || layer_number(name) >= layers;
  }
  std::string text;
  if (media > 0) text = fmt::format("{} tensors of vision and audio parts, because prompts are text", media);
  if (predictions > 0)
    text += fmt::format("{}{} tensors of layers that predict further tokens, which only the drafter mtp reads",
                        text.empty() ? "" : "; ", predictions);
  return text.empty() ? text : fmt::format("{}: ignores {}", files.path, text);
}

}  // namespace millrace
