// Predictor: the length of an answer before it is generated. One file each in predictors/ and one line in builtin.cc.
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
  virtual void learn(const Sequence& /*stream*/) {}  // its answer is complete
};

using PredictorFactory = std::unique_ptr<Predictor> (*)(const OptionValues& options);
const Registry<PredictorFactory>& predictors();

// `text` is NAME[:key=value]; when it is an option of a policy, its values contain no commas. Errors (user): unknown
// name or option.
Result<std::unique_ptr<Predictor>> make_predictor(std::string_view text);

}  // namespace millrace
