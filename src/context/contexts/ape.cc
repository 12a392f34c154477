// APE (Yang et al., 2025, APE: Faster and Longer Context-Augmented Generation via Adaptive Parallel Encoding): all
// documents are computed behind a shared prefix at the same positions, so that only the prefix has an attention sink.
// For the tokens behind them, scores of their keys are divided by a temperature T below 1, which sharpens what many
// documents blur, and the logarithm of the sum of their weights is multiplied by S T, which takes back what that adds:
//
//   weight of key k of a document    exp(q k / T) / C, where C = sum exp(q k' / T) over the keys of all documents
//   weight of all documents          C^(S T), beside exp(q k) of every other key
#include "context/contexts/factories.h"
#include "context/placements.h"

namespace millrace {
namespace {

class Ape final : public DocumentContext {
 public:
  Ape(int64_t prefix, double temperature, double scale) : prefix_(prefix), temperature_(temperature), scale_(scale) {}

  ContextPlan plan(std::span<const PromptDocument> documents) const override {
    ContextPlan plan = overlaid_documents(documents, prefix_);
    if (temperature_ == 1 && scale_ == 1) return plan;
    plan.sees = weighed_documents(plan, static_cast<float>(1 / temperature_), false);
    plan.documents.power = static_cast<float>(scale_ * temperature_);
    return plan;
  }

 private:
  int64_t prefix_;
  double temperature_, scale_;
};

}  // namespace

Result<std::unique_ptr<const DocumentContext>> make_ape(const OptionValues& options) {
  return std::unique_ptr<const DocumentContext>(
      std::make_unique<Ape>(options.integer("prefix"), options.number("T"), options.number("S")));
}

}  // namespace millrace
