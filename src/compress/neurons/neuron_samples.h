// Records the inputs of each layer's MLP while a model reads a text, and which neurons were active. Hooks of the pass.
#pragma once

#include <cstdint>
#include <vector>

#include "models/forward_hooks.h"
#include "models/neurons/neuron_predictor.h"

namespace millrace {

struct LayerSamples {
  int64_t tokens = 0;
  std::vector<float> inputs;    // [tokens][width]
  std::vector<uint8_t> active;  // [tokens][hidden]
};

// Records the first matrix of each dense MLP, which decides whether a neuron is active.
class NeuronSampler final : public LinearWrapper {
 public:
  NeuronSampler(int64_t layers, bool gated) : samples_(static_cast<size_t>(layers)), gated_(gated) {}
  std::vector<LayerSamples>& samples() { return samples_; }

  bool wraps(const LinearId& id) const override;
  void apply(const LinearCall& call) override;

 private:
  std::vector<LayerSamples> samples_;
  const bool gated_;
};

// Sets the gates of neurons that are not predicted to 0: the results of a pass with weights=llm_in_flash and
// predictors.
class NeuronMask final : public LinearWrapper {
 public:
  NeuronMask(const std::vector<NeuronPredictor>& predictors, bool gated) : predictors_(predictors), gated_(gated) {}

  bool wraps(const LinearId& id) const override;
  void apply(const LinearCall& call) override;
  const Result<void>& state() const { return state_; }

 private:
  const std::vector<NeuronPredictor>& predictors_;
  const bool gated_;
  PredictorRows rows_;
  Result<void> state_;
};

}  // namespace millrace
