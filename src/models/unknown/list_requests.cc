// ModelBuilder::check_tensors() and list_requests(): what a model asks its file for, found by the code that loads it.
#include <algorithm>

#include "models/model_builder.h"

namespace millrace {
namespace {

constexpr size_t kMaxLayerKinds = 8;

// Tensors that models of any family may have: ranking heads (models/ranking_head.h), and dense layers after pooling
// (evaluate/vector_head.h).
constexpr const char* kHeadTensors[] = {"cls.weight",        "cls.bias",        "cls.norm.weight", "cls.norm.bias",
                                        "cls.output.weight", "cls.output.bias", "dense_2.weight",  "dense_3.weight"};

// The first layer of each kind.
std::vector<int64_t> first_layers(const ArchSpec& spec) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < spec.layer_count() && out.size() < kMaxLayerKinds; ++i) {
    const LayerSpec& layer = spec.layers[static_cast<size_t>(i)];
    const auto same = [&](int64_t other) { return spec.layers[static_cast<size_t>(other)] == layer; };
    if (std::ranges::none_of(out, same)) out.push_back(i);
  }
  return out;
}

}  // namespace

Result<void> ModelBuilder::check_tensors(std::shared_ptr<const ModelFiles> files, const Arch& arch,
                                         const ArchSpec& spec) {
  ModelBuilder builder(std::move(files), arch, spec);
  MILLRACE_TRY_VOID(builder.load_around_layers());
  for (int64_t i = 0; i < spec.layer_count(); ++i) {
    MILLRACE_TRY_VOID(builder.load_layer(i));
    builder.model_->layers_[static_cast<size_t>(i)] = {};
  }
  return {};
}

// An error means that a value that the file lacks, a zero, is not allowed, or that a limit of WeightLoader is reached.
// The requests that would follow in the same function are then not listed.
std::vector<TensorRequest> ModelBuilder::list_requests(std::shared_ptr<const ModelFiles> files, const Arch& arch,
                                                       const ArchSpec& spec) {
  std::vector<TensorRequest> out;
  ModelBuilder builder(std::move(files), arch, spec, &out);
  static_cast<void>(builder.load_around_layers());
  for (const char* name : kHeadTensors)
    if (const StoredTensor* stored = builder.loader_.find(name))
      out.push_back({name, stored, stored->tensor.rows(), stored->tensor.cols()});
  for (const int64_t i : first_layers(spec)) {
    static_cast<void>(builder.load_layer(i));
    builder.model_->layers_[static_cast<size_t>(i)] = {};  // zeros of wide models are large
  }
  return out;
}

}  // namespace millrace
