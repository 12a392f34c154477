// Drafts from the requests' own predictions only (speculate/prediction.h), as every drafter does where there is one.
#include "speculate/drafters/factories.h"

namespace millrace {
namespace {

class Prediction final : public TextDrafter {
 public:
  void propose(const Sequence&, int64_t, Draft&) override {}
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_prediction_drafter(const OptionValues& options) {
  return text_drafter({.longest = options.integer("k")}, std::make_unique<Prediction>());
}

}  // namespace millrace
