// ModelBuilder::list_requests(): what a model asks its file for, found by the code that loads it.
#include <algorithm>

#include "models/model_builder.h"

namespace millrace {
namespace {

constexpr size_t kMaxLayerKinds = 8;

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

// Results are errors only where a value that the file lacks, a zero, is not allowed; what follows is then not listed.
std::vector<TensorRequest> ModelBuilder::list_requests(std::shared_ptr<const ModelFiles> files, const Arch& arch,
                                                       const ArchSpec& spec) {
  std::vector<TensorRequest> out;
  ModelBuilder builder(std::move(files), arch, spec, &out);
  WeightLoader& loader = builder.loader_;
  static_cast<void>(loader.matrix("token_embd.weight", spec.vocab, spec.width));
  if (spec.learned_positions) static_cast<void>(loader.matrix("position_embd.weight", spec.context, spec.width));
  static_cast<void>(builder.load_norm("output_norm", true));
  static_cast<void>(loader.optional_matrix("output.weight", spec.vocab, spec.width));
  static_cast<void>(loader.optional_vector("output.bias", spec.vocab));
  builder.model_->layers_.resize(spec.layers.size());
  for (const int64_t i : first_layers(spec)) {
    static_cast<void>(builder.load_layer(i));
    builder.model_->layers_[static_cast<size_t>(i)] = {};  // zeros of wide models are large
  }
  return out;
}

}  // namespace millrace
