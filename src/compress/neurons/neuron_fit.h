// Trains what a neuron file says about a model (models/neurons/neuron_file.h): how often a text uses each neuron, and
// for each layer a low-rank predictor of the neurons that are active for an input x of the MLP (Alizadeh et al., 2023,
// "LLM in a flash", section 3.1).
//
// The predictor is the reduced-rank ridge regression from x to the signs of the gates, in closed form. With the moments
// H = X^T X + damping = R R^T and the signs S [tokens][hidden], the full regression is W = H^-1 X^T S. The `rank`
// largest left singular vectors U of M = R^-1 X^T S give the best predictor of that rank: b = (U M)^T and a = U R^-1. U
// is found by subspace iteration. The paper trains the predictor by gradient descent instead.
//
// A neuron's threshold is the value that the share `recall` of its active tokens exceed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "models/neurons/neuron_file.h"
#include "run/language_model.h"

namespace millrace {

struct NeuronFitOptions {
  int threads = 0;        // 0: all cores
  int64_t context = 512;  // tokens of the windows that the text is cut into
  int64_t rank = 64;      // 0: no predictors
  double recall = 0.95;
  double damping = 0.01;  // ridge, as a share of the mean of the moments' diagonal
};

// Shares of a layer's neurons, over the tokens that training did not see.
struct NeuronFitLayer {
  double active = 0, predicted = 0;
  double recall = 0, precision = 0;
};

struct NeuronFit {
  std::vector<NeuronProfile> profiles;  // by layer
  std::vector<NeuronFitLayer> layers;   // recall and precision are 0 without predictors
  int64_t tokens = 0;                   // that a layer saw, at most
  // Mean negative log-likelihood of the text's last quarter, and the same with the predictors; 0 without.
  double loss = 0, predicted_loss = 0;
};

// Deterministic for any number of threads. Memory: 4 * width + hidden bytes for each token and layer. Errors: user (the
// text is too short), unsupported (the model has no MLPs that can be computed by neuron), resource.
Result<NeuronFit> fit_neurons(const std::shared_ptr<const LanguageModel>& model, std::span<const TokenId> tokens,
                              const NeuronFitOptions& options);

}  // namespace millrace
