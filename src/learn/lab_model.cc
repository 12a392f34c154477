#include "learn/lab_model.h"

#include <cmath>
#include <numbers>

#include "base/philox.h"

namespace millrace {
namespace {

double normal(uint64_t seed, uint64_t index) {  // Box and Muller, 1958
  const double radius = std::sqrt(-2.0 * std::log(1.0 - philox_uniform(seed, 0, 2 * index)));
  return radius * std::cos(2.0 * std::numbers::pi * philox_uniform(seed, 0, 2 * index + 1));
}

}  // namespace

LabModel::LabModel(const ArchSpec& spec, uint64_t seed) : spec_(spec) {
  const double deviation = 1.0 / std::sqrt(static_cast<double>(spec.width));
  const double deep = 1.0 / std::sqrt(2.0 * static_cast<double>(spec.layer_count()));  // residual branches start small
  auto matrix = [&](const std::string& name, int64_t rows, int64_t columns, double spread) {
    const auto offset = static_cast<int64_t>(weights_.size());
    for (int64_t i = 0; i < rows * columns; ++i)
      weights_.push_back(static_cast<float>(spread * normal(seed, static_cast<uint64_t>(offset + i))));
    return LabTensor{name, rows, columns, offset, {rows}, true};
  };
  auto vector = [&](const std::string& name) {
    const auto offset = static_cast<int64_t>(weights_.size());
    weights_.resize(weights_.size() + static_cast<size_t>(spec.width), 1.0f);
    return LabTensor{name, 1, spec.width, offset, {1}, false};
  };
  embedding_ = matrix("embedding", spec.vocab, spec.width, 0.02);
  embedding_.matrix = false;
  for (const LayerSpec& sizes : spec.layers) {
    const std::string p = "layer" + std::to_string(layers_.size()) + "_";
    LabLayerTensors layer;
    layer.attention_norm = vector(p + "attention_norm");
    layer.qkv = matrix(p + "qkv", qkv_rows(sizes), spec.width, deviation);
    const int64_t mixed = sizes.heads * sizes.head_dim, kv = sizes.kv_heads * sizes.head_dim;
    layer.qkv.parts = {mixed, kv, kv};
    layer.out = matrix(p + "out", spec.width, mixed, deviation * deep);
    layer.mlp_norm = vector(p + "mlp_norm");
    const int64_t mlps = mlp_count(sizes), hidden = mlp_width(sizes);
    layer.gate_up = matrix(p + "gate_up", mlps * 2 * hidden, spec.width, deviation);
    layer.gate_up.parts.assign(static_cast<size_t>(2 * mlps), hidden);
    layer.down = matrix(p + "down", mlps * spec.width, hidden, deep / std::sqrt(static_cast<double>(hidden)));
    layer.down.parts.assign(static_cast<size_t>(mlps), spec.width);
    if (sizes.moe) {
      layer.router = matrix(p + "router", mlps, spec.width, 0.02);
      layer.router.matrix = false;
    }
    layers_.push_back(std::move(layer));
  }
  final_norm_ = vector("final_norm");
  gradient_.assign(weights_.size(), 0.0f);
}

std::vector<LabTensor> LabModel::tensors() const {
  std::vector<LabTensor> out = {embedding_, final_norm_};
  for (const LabLayerTensors& l : layers_) {
    out.insert(out.end(), {l.attention_norm, l.qkv, l.out, l.mlp_norm, l.gate_up, l.down});
    if (l.router.columns > 0) out.push_back(l.router);
  }
  return out;
}

}  // namespace millrace
