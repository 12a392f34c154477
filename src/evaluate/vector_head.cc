#include "evaluate/vector_head.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "base/ordered_json.h"
#include "formats/format.h"
#include "loader/model_folder.h"
#include "loader/safetensors.h"
#include "tensor/mapped_file.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxModuleFile = 1 << 20;       // bytes of a JSON file
constexpr int64_t kMaxDense = int64_t{1} << 16;  // rows and columns of a layer

Result<std::vector<float>> values_of(const Tensor& tensor, const std::string& name) {
  if (!tensor.format || tensor.cols() > kMaxDense || tensor.rows() > kMaxDense)
    return Error::unsupported(fmt::format("{}: of an unknown type or size", name));
  std::vector<float> out(static_cast<size_t>(tensor.values()));
  for (int64_t row = 0; row < tensor.rows(); ++row)
    tensor.format->decode(tensor.data + row * tensor.format->row_bytes(tensor.cols()), out.data() + row * tensor.cols(),
                          tensor.cols());
  for (const float value : out)
    if (!std::isfinite(value)) return Error::corrupt(fmt::format("{}: holds NaN or infinity", name));
  return out;
}

// The value of a field that is a string; "" if there is none.
std::string text_of(const nlohmann::ordered_json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

Result<VectorHead> VectorHead::read(const ModelFiles& files, int64_t width) {
  VectorHead out;
  out.input_ = out.width_ = width;
  if (files.kind == ModelFiles::Kind::gguf) {
    for (const char* name : {"dense_2.weight", "dense_3.weight"}) {
      const StoredTensor* stored = files.find(name);
      if (!stored) continue;
      Layer layer;
      layer.cols = stored->tensor.cols();
      MILLRACE_TRY(layer.weight, values_of(stored->tensor, files.path + ": tensor " + name));
      MILLRACE_TRY_VOID(out.add(std::move(layer), files.path + ": tensor " + name));
    }
    return out;
  }
  const fs::path folder = model_folder(files.path);
  MILLRACE_TRY(const std::vector<FolderModule> modules, read_modules(folder));
  for (const FolderModule& module : modules) {
    if (!module.type.ends_with(".Dense")) continue;
    if (module.path.empty())
      return Error::corrupt(fmt::format("{}: a dense layer without a path", (folder / "modules.json").string()));
    MILLRACE_TRY(Layer layer, read_module((folder / module.path).string()));
    MILLRACE_TRY_VOID(out.add(std::move(layer), (folder / module.path).string()));
  }
  return out;
}

Result<VectorHead::Layer> VectorHead::read_module(const std::string& folder) {
  Layer layer;
  MILLRACE_TRY(const auto config, read_json_object(folder + "/config.json", {.bytes = kMaxModuleFile}));
  const std::string activation = text_of(config, "activation_function");
  layer.tanh = activation.ends_with(".Tanh");
  if (!layer.tanh && !activation.empty() && !activation.ends_with(".Identity"))
    return Error::unsupported(fmt::format("{}/config.json: activation_function '{}'", folder, activation));
  const std::string path = folder + "/model.safetensors";
  MILLRACE_TRY(const auto file, MappedFile::open(path));
  MILLRACE_TRY(const auto tensors, parse_safetensors(file->bytes(), path));
  for (const SafetensorsTensor& one : tensors) {
    const Tensor tensor{find_format_safetensors(one.dtype), one.rank, one.dims, file->bytes().data() + one.offset,
                        static_cast<int64_t>(one.bytes)};
    if (one.name == "linear.bias") {
      MILLRACE_TRY(layer.bias, values_of(tensor, path + ": linear.bias"));
    } else if (one.name == "linear.weight") {
      layer.cols = tensor.cols();
      MILLRACE_TRY(layer.weight, values_of(tensor, path + ": linear.weight"));
    }
  }
  return layer;
}

Result<void> VectorHead::add(Layer layer, const std::string& source) {
  if (layer.cols != width_ || layer.weight.empty() || (!layer.bias.empty() && std::ssize(layer.bias) != layer.rows()))
    return Error::corrupt(fmt::format("{}: a dense layer of {} rows and {} columns, and the vector before it has {}",
                                      source, layer.cols > 0 ? layer.rows() : 0, layer.cols, width_));
  width_ = layer.rows();
  layers_.push_back(std::move(layer));
  return {};
}

std::vector<double> VectorHead::Layer::run(std::span<const double> x) const {
  std::vector<double> y(static_cast<size_t>(rows()));
  for (size_t row = 0; row < y.size(); ++row) {
    double sum = bias.empty() ? 0 : static_cast<double>(bias[row]);
    for (size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(weight[row * x.size() + i]) * x[i];
    y[row] = tanh ? std::tanh(sum) : sum;
  }
  return y;
}

void VectorHead::apply(std::vector<float>& values) const {
  if (empty()) return;
  std::vector<float> out;
  for (auto at = values.begin(); at != values.end(); at += input_) {
    std::vector<double> x(at, at + input_);
    for (const Layer& layer : layers_) x = layer.run(x);
    out.insert(out.end(), x.begin(), x.end());
  }
  values = std::move(out);
}

}  // namespace millrace
