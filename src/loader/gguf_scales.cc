#include "loader/gguf_scales.h"

#include <fmt/format.h>

#include <cmath>

#include "formats/format.h"
#include "loader/file_text.h"
#include "loader/hf_weights.h"

namespace millrace {
namespace {

Result<void> attach(const ModelFiles& model, StoredTensor& matrix, const StoredTensor& scale) {
  const Tensor& tensor = matrix.tensor;
  const int64_t stacked = tensor.rank > 2 ? tensor.dims[0] : 1;
  if (scale.type_name != "F32" || scale.tensor.values() != stacked)
    return Error::corrupt(fmt::format("{}: tensor {} at offset {}: is {} with {} values; {} needs F32 with {}",
                                      model.path, quoted_name(scale.name), scale.offset, scale.type_name,
                                      scale.tensor.values(), quoted_name(matrix.name), stacked));
  std::vector<float> values(static_cast<size_t>(stacked));
  scale.tensor.format->decode(scale.tensor.data, values.data(), stacked);
  for (float value : values)
    if (!std::isfinite(value))
      return Error::corrupt(fmt::format("{}: tensor {} at offset {}: a scale is not finite", model.path,
                                        quoted_name(scale.name), scale.offset));
  matrix.scales.values = std::move(values);
  matrix.scales.block_rows = tensor.rows() / stacked;
  matrix.scales.block_cols = tensor.cols();
  return {};
}

}  // namespace

Result<void> attach_gguf_scales(ModelFiles& model) {
  constexpr std::string_view kWeight = ".weight";
  std::vector<bool> absorbed(model.tensors.size(), false);
  bool any = false;
  for (StoredTensor& matrix : model.tensors) {
    const Format* format = matrix.tensor.format;
    if (!format || format->matrix_limit == 0 || matrix.tensor.values() == 0 || !matrix.name.ends_with(kWeight))
      continue;
    const std::string prefix = matrix.name.substr(0, matrix.name.size() - kWeight.size());
    if (const auto found = model.tensor_index.find(prefix + ".scale"); found != model.tensor_index.end()) {
      MILLRACE_TRY_VOID(attach(model, matrix, model.tensors[found->second]));
      absorbed[found->second] = any = true;
    }
    // A weight part of that name has a value for each column.
    const auto inputs = model.tensor_index.find(prefix + ".input_scale");
    if (inputs == model.tensor_index.end()) continue;
    const int64_t stacked = matrix.tensor.rank > 2 ? matrix.tensor.dims[0] : 1;
    const bool is_part = stacked == 1 && model.tensors[inputs->second].tensor.values() == matrix.tensor.cols();
    if (!is_part) absorbed[inputs->second] = any = true;
  }
  if (any) remove_tensors(model, absorbed);
  return {};
}

}  // namespace millrace
