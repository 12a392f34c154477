// Predictor: how long an answer will be, before it is written. One file each in predictors/ and one line in builtin.cc.
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
  virtual void learn(const Sequence& /*stream*/) {}  // whose answer is whole
};

using PredictorFactory = std::unique_ptr<Predictor> (*)(const OptionValues& options);
const Registry<PredictorFactory>& predictors();

// `text` is NAME[:key=value]; as an option of a policy, whose values hold no commas. Errors (user): unknown name or
// option.
Result<std::unique_ptr<Predictor>> make_predictor(std::string_view text);

}  // namespace millrace
