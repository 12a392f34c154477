// The same length for every answer: the baseline for other predictors.
#include "schedule/predictors/factories.h"

namespace millrace {
namespace {

class Constant final : public Predictor {
 public:
  explicit Constant(double tokens) : tokens_(tokens) {}
  double answer_tokens(const Sequence&) const override { return tokens_; }

 private:
  double tokens_;
};

}  // namespace

std::unique_ptr<Predictor> make_constant(const OptionValues& options) {
  return std::make_unique<Constant>(options.number("tokens"));
}

}  // namespace millrace
