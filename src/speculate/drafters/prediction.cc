// Drafts from the requests' own predictions only (speculate/prediction.h), as every drafter does where there is one.
#include "speculate/drafters/factories.h"

namespace millrace {
namespace {

class Prediction final : public Drafter {
 public:
  explicit Prediction(int64_t drafted) : drafted_(drafted) {}
  int64_t longest() const override { return drafted_; }

 private:
  int64_t drafted_;
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_prediction_drafter(const OptionValues& options) {
  return std::unique_ptr<Drafter>(std::make_unique<Prediction>(options.integer("k")));
}

}  // namespace millrace
