// Parallel context windows (Ratner et al., 2023, Parallel Context Windows for Large Language Models) without a shared
// start: every document is computed as if nothing came before it, all at the same positions from 0 on, and what follows
// is behind the longest. It is the baseline that the other contexts improve on: every document has an attention sink of
// its own, and all of them compete for the question's attention.
#include "context/contexts/factories.h"
#include "context/placements.h"

namespace millrace {
namespace {

class Independent final : public DocumentContext {
 public:
  ContextPlan plan(std::span<const PromptDocument> documents) const override {
    return overlaid_documents(documents, 0);
  }
};

}  // namespace

Result<std::unique_ptr<const DocumentContext>> make_independent(const OptionValues&) {
  return std::unique_ptr<const DocumentContext>(std::make_unique<Independent>());
}

}  // namespace millrace
