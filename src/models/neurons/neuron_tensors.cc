#include "models/neurons/neuron_tensors.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "tensor/half.h"

namespace millrace {
namespace {

constexpr int64_t kHashedRows = 16;  // rows of each matrix that the identity covers

const StoredTensor* stored_matrix(const ModelFiles& files, int64_t layer, std::string_view matrix) {
  return files.find(mlp_tensor_name(layer, matrix));
}

// A matrix of one format in all layers, without parts that change its product.
Result<const Format*> matrix_format(const ModelFiles& files, std::string_view matrix, int64_t layers, int64_t rows,
                                    int64_t cols) {
  const Format* format = nullptr;
  for (int64_t l = 0; l < layers; ++l) {
    const StoredTensor* const stored = stored_matrix(files, l, matrix);
    const std::string name = mlp_tensor_name(l, matrix);
    if (!stored || !stored->tensor.format || stored->tensor.rows() != rows || stored->tensor.cols() != cols)
      return Error::unsupported(
          fmt::format("{}: no matrix {} of {} x {} that can be read by neuron; MLPs whose matrices "
                      "are compressed or stored together cannot",
                      files.path, name, rows, cols));
    if (format && stored->tensor.format != format)
      return Error::unsupported(
          fmt::format("{}: {} is {}, the layers before have {}; convert the model to one format "
                      "with millrace convert",
                      files.path, name, stored->tensor.format->name, format->name));
    format = stored->tensor.format;
  }
  if (format->matrix_limit > 0)
    return Error::unsupported(
        fmt::format("{}: {} has scales of whole matrices; convert the model to q8_0 with millrace convert", files.path,
                    format->name));
  return format;
}

}  // namespace

std::string mlp_tensor_name(int64_t layer, std::string_view matrix) {
  return fmt::format("blk.{}.{}.weight", layer, matrix);
}

Result<NeuronShape> neuron_shape(const ModelFiles& files, const ArchSpec& spec) {
  if (files.kind != ModelFiles::Kind::gguf)
    return Error::unsupported(
        fmt::format("{}: MLPs are read by neuron from GGUF files; convert the model with "
                    "millrace convert",
                    files.path));
  if (spec.activation != HiddenActivation::relu)
    return Error::unsupported(
        fmt::format("{}: its MLPs have no ReLU, so no neuron's output is exactly 0; millrace "
                    "compress --pass relufy makes a model with ReLU of it",
                    files.path));
  if (spec.gate_scale <= 0 || spec.mlp_scale <= 0)
    return Error::unsupported(
        fmt::format("{}: its MLPs scale their gates by numbers that are not positive", files.path));
  NeuronShape shape{.layers = spec.layer_count(), .width = spec.width, .gated = spec.gated};
  for (LayerSpec layer : spec.layers) {
    set_own_sizes(spec, layer);
    if (layer.moe || !layer.mlp || (shape.hidden > 0 && layer.hidden != shape.hidden) || layer.gate_cut > 0)
      return Error::unsupported(fmt::format("{}: not every layer has a dense MLP of the same width", files.path));
    shape.hidden = layer.hidden;
  }
  if (spec.gated) {
    MILLRACE_TRY(shape.gate, matrix_format(files, "ffn_gate", shape.layers, shape.hidden, shape.width));
  }
  MILLRACE_TRY(shape.up, matrix_format(files, "ffn_up", shape.layers, shape.hidden, shape.width));
  MILLRACE_TRY(shape.down, matrix_format(files, "ffn_down", shape.layers, shape.width, shape.hidden));
  if (shape.gated && shape.gate->activation != shape.up->activation)
    return Error::unsupported(
        fmt::format("{}: its gates are {} and its up matrices {}, which round their inputs "
                    "differently; convert the model to one format with millrace convert",
                    files.path, shape.gate->name, shape.up->name));
  if (shape.down->name != "f32" && shape.down->name != "f16" && shape.down->name != "q8_0")
    return Error::unsupported(
        fmt::format("{}: its down matrices are {}; columns are read of f32, f16 and q8_0: convert "
                    "the model with millrace convert",
                    files.path, shape.down->name));
  return shape;
}

NeuronMatrices neuron_matrices(const ModelFiles& files, const NeuronShape& shape, int64_t layer) {
  NeuronMatrices out{.up = stored_matrix(files, layer, "ffn_up")->tensor.data,
                     .down = stored_matrix(files, layer, "ffn_down")->tensor.data};
  if (shape.gated) out.gate = stored_matrix(files, layer, "ffn_gate")->tensor.data;
  return out;
}

void copy_columns(const NeuronMatrices& tensors, const NeuronShape& shape, int64_t first, int64_t count, uint8_t* to,
                  int64_t stride) {
  const int64_t row_bytes = shape.down->row_bytes(shape.hidden);
  const int64_t value = shape.down_has_scales() ? 1 : shape.down->block_bytes;
  const int64_t skipped = shape.down_has_scales() ? shape.down->block_bytes - shape.down->block_values : 0;
  for (int64_t r = 0; r < shape.width; ++r) {
    const uint8_t* const block =
        tensors.down + r * row_bytes + first / shape.down->block_values * shape.down->block_bytes + skipped;
    for (int64_t c = 0; c < count; ++c)
      std::memcpy(to + c * stride + r * value, block + c * value, static_cast<size_t>(value));
  }
}

std::vector<float> column_scales(const NeuronMatrices& tensors, const NeuronShape& shape) {
  if (!shape.down_has_scales()) return {};
  const int64_t blocks = shape.hidden / shape.down->block_values, row_bytes = shape.down->row_bytes(shape.hidden);
  std::vector<float> out(static_cast<size_t>(blocks * shape.width));
  for (int64_t r = 0; r < shape.width; ++r) {
    for (int64_t b = 0; b < blocks; ++b) {
      uint16_t scale;
      std::memcpy(&scale, tensors.down + r * row_bytes + b * shape.down->block_bytes, sizeof scale);
      out[static_cast<size_t>(b * shape.width + r)] = f16_to_f32(scale);
    }
  }
  return out;
}

uint64_t neuron_identity(const ModelFiles& files, const NeuronShape& shape) {
  uint64_t hash = 0;
  for (int64_t l = 0; l < shape.layers; ++l) {
    for (const char* matrix : {"ffn_gate", "ffn_up", "ffn_down"}) {
      const StoredTensor* const stored = stored_matrix(files, l, matrix);
      if (!stored) continue;
      const Tensor& tensor = stored->tensor;
      const int64_t row = tensor.format->row_bytes(tensor.cols());
      const int64_t sizes[] = {tensor.rows(), tensor.cols(), tensor.format->gguf_type};
      hash = XXH3_64bits_withSeed(sizes, sizeof sizes, hash);
      const int64_t step = std::max<int64_t>(1, tensor.rows() / kHashedRows);
      for (int64_t r = 0; r < tensor.rows(); r += step)
        hash = XXH3_64bits_withSeed(tensor.data + r * row, static_cast<size_t>(row), hash);
    }
  }
  return hash;
}

}  // namespace millrace
