// Predictor: predicts the length of an answer before it is generated. Each predictor is one file in predictors/ and one
// line in builtin.cc.
#pragma once

#include <memory>
#include <string_view>

#include "base/registry.h"
#include "flow/sequence.h"

namespace millrace {

class Predictor {
 public:
  virtual ~Predictor() = default;
  virtual double answer_tokens(const Sequence& stream) const = 0;
  virtual void learn(const Sequence& /*stream*/) {}  // learns from a stream whose answer is complete
};

using PredictorFactory = std::unique_ptr<Predictor> (*)(const OptionValues& options);
const Registry<PredictorFactory>& predictors();

// `text`: NAME[:key=value]. As an option of a policy, it must not contain commas. Errors: user (unknown name or
// option).
Result<std::unique_ptr<Predictor>> make_predictor(std::string_view text);

}  // namespace millrace
