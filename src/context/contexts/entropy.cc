// The two remedies for irregularly high attention entropy of Zhang et al., 2024, Attention Entropy is a Key Factor: An
// Analysis of Parallel Context Encoding with Full-attention-based Pre-trained Language Models. Shared attention sinks:
// every document is computed behind the same first tokens of the prompt. Selective attention: a token behind the
// documents sees, in every head, only the `top` documents that get the largest sums of its weights.
#include "context/contexts/factories.h"
#include "context/placements.h"

namespace millrace {
namespace {

class Entropy final : public DocumentContext {
 public:
  Entropy(int64_t sinks, int64_t top) : sinks_(sinks), top_(top) {}

  ContextPlan plan(std::span<const PromptDocument> documents) const override {
    ContextPlan plan = overlaid_documents(documents, sinks_);
    if (top_ == 0 || top_ >= std::ssize(plan.parts)) return plan;
    plan.sees = weighed_documents(plan, 1, true);
    plan.documents.most = static_cast<int32_t>(top_);
    return plan;
  }

 private:
  int64_t sinks_, top_;
};

}  // namespace

Result<std::unique_ptr<const DocumentContext>> make_entropy(const OptionValues& options) {
  return std::unique_ptr<const DocumentContext>(
      std::make_unique<Entropy>(options.integer("sinks"), options.integer("top")));
}

}  // namespace millrace
