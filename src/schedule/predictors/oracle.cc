// The true length where the trace has it, else the client's prediction, else the requested maximum: an upper bound on
// predictor quality.
#include "schedule/predictors/factories.h"

namespace millrace {
namespace {

class Oracle final : public Predictor {
 public:
  double answer_tokens(const Sequence& stream) const override {
    const Request& request = stream.request;
    if (request.known_tokens >= 0) return static_cast<double>(request.known_tokens);
    if (request.predicted_tokens >= 0) return static_cast<double>(request.predicted_tokens);
    return static_cast<double>(stream.max_total - stream.prompt_tokens);
  }
};

}  // namespace

std::unique_ptr<Predictor> make_oracle(const OptionValues&) { return std::make_unique<Oracle>(); }

}  // namespace millrace
