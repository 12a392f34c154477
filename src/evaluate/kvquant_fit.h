// Fits the levels of the KV codec kvquant to a text, for keys and for values of each layer (Hooper et al., 2024,
// KVQuant, section 3.2). The model reads the text with the codec in use. The values of each vector, without outliers,
// are scaled to [-1, 1] and added to a histogram, weighted by the square of the vector's range. The levels are the
// centers that minimize the squared error of the histogram.
//
// The paper also weights errors by the Fisher information of each value, which needs gradients; this fit does not.
#pragma once

#include <memory>
#include <span>

#include "kv/codecs/kvquant.h"
#include "run/language_model.h"

namespace millrace {

struct KvQuantFitOptions {
  int threads = 0;        // 0: all cores
  int64_t context = 512;  // tokens of the windows that the text is cut into
  KvQuantShape shape;
};

// Squared errors of the levels for a layer's keys or values, in units of the range of a vector.
struct KvQuantFitError {
  double fitted = 0, normal = 0;  // with the fitted levels, and with the levels for normally distributed values
};

struct KvQuantFit {
  KvQuantLevels levels;
  std::vector<KvQuantFitError> keys, values;  // by layer; 0 in layers without keys
};

// Fits the levels to the text. Deterministic for any number of threads. Errors: user (the text is too short, invalid
// options), unsupported, resource.
Result<KvQuantFit> fit_kvquant_levels(const std::shared_ptr<const LanguageModel>& model,
                                      std::span<const TokenId> tokens, const KvQuantFitOptions& options);

}  // namespace millrace
