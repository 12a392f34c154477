#include "compress/neurons/neuron_samples.h"

namespace millrace {
namespace {

bool decides(const LinearId& id, bool gated) {
  return id.layer >= 0 && id.expert == LinearId::kNoExpert && id.kind == (gated ? LinearKind::gate : LinearKind::up);
}

}  // namespace

bool NeuronSampler::wraps(const LinearId& id) const { return decides(id, gated_); }

void NeuronSampler::apply(const LinearCall& call) {
  LayerSamples& layer = samples_[static_cast<size_t>(call.in.id.layer)];
  layer.tokens += call.in.tokens;
  layer.inputs.insert(layer.inputs.end(), call.in.x, call.in.x + call.in.tokens * call.in.weight.cols);
  for (int64_t i = 0; i < call.in.tokens * call.in.weight.rows; ++i) layer.active.push_back(call.y[i] > 0);
}

bool NeuronMask::wraps(const LinearId& id) const { return decides(id, gated_); }

void NeuronMask::apply(const LinearCall& call) {
  const NeuronPredictor& predictor = predictors_[static_cast<size_t>(call.in.id.layer)];
  if (auto scored = predictor.score(call.in.x, call.in.tokens, call.kernels, call.pool, rows_); !scored.ok())
    state_ = scored;
  if (!state_.ok()) return;
  const int64_t hidden = call.in.weight.rows;
  for (int64_t t = 0; t < call.in.tokens; ++t)
    for (int64_t n = 0; n < hidden; ++n)
      if (!predictor.active(rows_, t, n)) call.y[t * hidden + n] = 0.0f;
}

}  // namespace millrace
