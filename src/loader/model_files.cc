#include "loader/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>

#include "formats/format.h"
#include "loader/file_text.h"
#include "loader/gguf_model.h"
#include "loader/hf_model.h"

namespace millrace {

const StoredTensor* ModelFiles::find(std::string_view name) const {
  auto found = tensor_index.find(std::string(name));
  return found == tensor_index.end() ? nullptr : &tensors[found->second];
}

void ModelFiles::release(const uint8_t* begin, const uint8_t* end) const {
  const std::less<> before;  // the bytes may be those of different files
  for (const auto& file : files) {
    const std::span<const uint8_t> bytes = file->bytes();
    const uint8_t* first = std::max(begin, bytes.data(), before);
    const uint8_t* last = std::min(end, bytes.data() + bytes.size(), before);
    if (before(first, last))
      file->release(static_cast<size_t>(first - bytes.data()), static_cast<size_t>(last - first));
  }
}

Result<void> check_tensor_finite(const ModelFiles& model, const StoredTensor& stored) {
  const Format* format = stored.tensor.format;
  const std::string& file = stored.file < model.files.size() ? model.files[stored.file]->path() : model.path;
  if (format && format->find_non_finite) {
    int64_t block = format->find_non_finite(stored.tensor.data, stored.tensor.values());
    if (block >= 0) {
      return Error::corrupt(
          fmt::format("{}: tensor {} at offset {}: {} block {} has a scale or value that is not finite (NaN or "
                      "infinite); the file is damaged",
                      file, quoted_name(stored.name),
                      stored.offset + static_cast<uint64_t>(block) * format->block_bytes, stored.type_name, block));
    }
  }
  for (size_t i = 0; i < stored.scales.values.size(); ++i) {
    if (!std::isfinite(stored.scales.values[i])) {
      return Error::corrupt(
          fmt::format("{}: tensor {} at offset {}: scale {} is not finite (NaN or infinite); the file is damaged", file,
                      quoted_name(stored.name), stored.offset, i));
    }
  }
  return {};
}

Result<void> check_finite(const ModelFiles& model) {
  for (const StoredTensor& stored : model.tensors) MILLRACE_TRY_VOID(check_tensor_finite(model, stored));
  return {};
}

Result<ModelFiles> open_model_files(const std::string& path) {
  std::error_code ignored;
  bool folder = std::filesystem::is_directory(path, ignored);
  if (folder || path.ends_with(".safetensors") || path.ends_with(".safetensors.index.json"))
    return open_huggingface(path);
  return open_gguf(path);
}

}  // namespace millrace
