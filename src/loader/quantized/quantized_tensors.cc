#include "loader/quantized/quantized_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "formats/format.h"
#include "loader/file_text.h"
#include "loader/hf_weights.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

StoredTensor* QuantizedTensors::find(std::string_view name) const {
  const auto found = model_.tensor_index.find(prefix_ + std::string(name));
  return found == model_.tensor_index.end() ? nullptr : &model_.tensors[found->second];
}

Error QuantizedTensors::wrong(const StoredTensor& stored, const std::string& what) const {
  return Error::corrupt(fmt::format("{}: tensor {} at offset {}: {}", model_.files[stored.file]->path(),
                                    quoted_name(stored.name), stored.offset, what));
}

Result<const StoredTensor*> QuantizedTensors::matrix(std::string_view name, std::string_view type, int64_t rows,
                                                     int64_t cols) const {
  const StoredTensor* stored = find(name);
  if (!stored)
    return Error::corrupt(
        fmt::format("{}: tensor {} is missing", model_.path, quoted_name(prefix_ + std::string(name))));
  const Tensor& tensor = stored->tensor;
  const auto text = [](int64_t n) { return n < 0 ? std::string("any") : fmt::format("{}", n); };
  const bool fits = tensor.rank == 2 && tensor.values() > 0 && (rows < 0 || tensor.rows() == rows) &&
                    (cols < 0 || tensor.cols() == cols);
  if (stored->type_name == type && fits) return stored;
  return wrong(*stored, fmt::format("is {} of {} dimensions, {} x {}; must be {}, {} x {}", stored->type_name,
                                    tensor.rank, tensor.rows(), tensor.cols(), type, text(rows), text(cols)));
}

Result<std::vector<float>> QuantizedTensors::numbers(std::string_view name, int64_t rows, int64_t cols) const {
  const StoredTensor* stored = find(name);
  if (!stored)
    return Error::corrupt(
        fmt::format("{}: tensor {} is missing", model_.path, quoted_name(prefix_ + std::string(name))));
  const Tensor& tensor = stored->tensor;
  const bool fits = tensor.values() == rows * cols && (tensor.rank == 1 || tensor.cols() == cols || rows == 1);
  if (!fits) return wrong(*stored, fmt::format("has {} values, must have {} x {}", tensor.values(), rows, cols));
  return read_scales(model_, *stored);
}

Result<std::vector<int32_t>> QuantizedTensors::integers(std::string_view name, int64_t n, int64_t most) const {
  const StoredTensor* stored = find(name);
  if (!stored)
    return Error::corrupt(
        fmt::format("{}: tensor {} is missing", model_.path, quoted_name(prefix_ + std::string(name))));
  const bool wide = stored->type_name == "I64";
  if ((!wide && stored->type_name != "I32") || stored->tensor.values() != n)
    return wrong(*stored, fmt::format("is {} with {} values; must be I32 or I64 with {}", stored->type_name,
                                      stored->tensor.values(), n));
  std::vector<int32_t> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    int64_t value = 0;
    if (wide) {
      std::memcpy(&value, stored->tensor.data + 8 * i, 8);
    } else {
      int32_t narrow;
      std::memcpy(&narrow, stored->tensor.data + 4 * i, 4);
      value = narrow;
    }
    if (value < 0 || value > most)
      return wrong(*stored, fmt::format("holds {} at index {}; must be from 0 to {}", value, i, most));
    out[static_cast<size_t>(i)] = static_cast<int32_t>(value);
  }
  return out;
}

Result<void> add_part(ModelFiles& model, std::string name, size_t file, const std::vector<float>& values) {
  MILLRACE_TRY(AlignedBuffer buffer, AlignedBuffer::allocate(std::ssize(values) * 4, name.c_str()));
  std::ranges::copy(values, buffer.as<float>());
  StoredTensor part;
  part.name = std::move(name);
  part.type_name = "F32";
  part.file = file;
  part.tensor = {find_format("f32"), 1, {std::ssize(values), 1, 1, 1}, buffer.data(), std::ssize(values) * 4};
  model.buffers.push_back(std::make_shared<AlignedBuffer>(std::move(buffer)));
  model.tensors.push_back(std::move(part));
  return {};
}

uint32_t packed_bits(const uint8_t* words, int64_t stride_words, int64_t bit, int bits) {
  const uint8_t* at = words + bit / 32 * stride_words * 4;
  uint32_t low;
  std::memcpy(&low, at, sizeof(low));
  const int shift = static_cast<int>(bit % 32);
  uint32_t value = low >> shift;
  if (shift + bits > 32) {
    uint32_t high;
    std::memcpy(&high, at + stride_words * 4, sizeof(high));
    value |= high << (32 - shift);
  }
  return value & ((uint32_t{1} << bits) - 1);
}

}  // namespace millrace
