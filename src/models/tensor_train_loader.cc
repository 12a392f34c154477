#include "models/tensor_train_loader.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "formats/format.h"

namespace millrace {

TensorTrain checked_tensor_train(const ModelFiles& files) {
  TensorTrain out;
  const StoredTensor* stored = files.find(kTensorTrain);
  if (!stored) return out;
  std::array<float, 2 * TensorTrain::kMaxModes> numbers = {};
  out.modes = static_cast<int>(stored->tensor.cols());
  std::memcpy(numbers.data(), stored->tensor.data, static_cast<size_t>(out.modes) * 2 * sizeof(float));
  for (int i = 0; i < out.modes; ++i) {
    out.sizes[static_cast<size_t>(i)] = static_cast<int32_t>(numbers[static_cast<size_t>(i)]);
    out.ranks[static_cast<size_t>(i)] = static_cast<int32_t>(numbers[static_cast<size_t>(out.modes + i)]);
  }
  return out;
}

Result<TensorTrain> read_tensor_train(const ModelFiles& files, int64_t width) {
  const StoredTensor* stored = files.find(kTensorTrain);
  if (!stored || files.kind != ModelFiles::Kind::gguf) return TensorTrain();
  const Tensor& tensor = stored->tensor;
  const auto wrong = [&](const std::string& what) {
    return Error::corrupt(fmt::format("{}: tensor {} at offset {} {}", files.path, stored->name, stored->offset, what));
  };
  if (tensor.format != find_format("f32") || tensor.rank != 2 || tensor.rows() != 2 || tensor.cols() < 1 ||
      tensor.cols() > TensorTrain::kMaxModes)
    return wrong(fmt::format("is {} of shape [{}, {}], must be F32 [2, modes] with 1 to {} modes", stored->type_name,
                             tensor.rows(), tensor.cols(), TensorTrain::kMaxModes));
  std::vector<float> numbers(static_cast<size_t>(tensor.values()));
  tensor.format->decode(tensor.data, numbers.data(), tensor.values());
  int64_t product = 1;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const bool size = i < numbers.size() / 2;
    const auto most = static_cast<float>(size ? width : i + 1 == numbers.size() ? 1 : TensorTrain::kMaxRank);
    if (!(numbers[i] >= 1) || numbers[i] > most || numbers[i] != std::floor(numbers[i]))
      return wrong(fmt::format("holds {}, must be sizes and ranks from 1 to {}", numbers[i], most));
    if (size && (product *= static_cast<int64_t>(numbers[i])) > width) break;
  }
  if (product != width)
    return wrong(fmt::format("has modes of {} values or more in all, must have {}", product, width));
  const TensorTrain out = checked_tensor_train(files);
  if (out.values() >= width)
    return wrong(fmt::format("has cores of {} values for rows of {}, must have fewer", out.values(), width));
  return out;
}

}  // namespace millrace
