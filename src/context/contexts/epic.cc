// LegoLink of EPIC (Hu et al., 2024, EPIC: Efficient Position-Independent Context Caching for Serving Large Language
// Models): documents are computed on their own and moved to where they stand, as in KVLink. Then the first
// `recompute` tokens of each are computed again, seeing all that comes before. The start of a document that was
// computed on its own is an attention sink, and draws attention in the middle of a prompt; computed again, it no longer
// is.
#include <algorithm>

#include "context/contexts/factories.h"
#include "context/placements.h"

namespace millrace {
namespace {

class Epic final : public DocumentContext {
 public:
  Epic(int64_t sinks, int64_t recompute) : sinks_(sinks), recompute_(recompute) {}

  ContextPlan plan(std::span<const PromptDocument> documents) const override {
    ContextPlan plan = moved_documents(documents, sinks_);
    for (ContextPart& part : plan.parts)  // one that did not move has seen all before it
      if (part.moved > 0) part.fresh_first = std::min(recompute_, part.end - part.begin);
    return plan;
  }

 private:
  int64_t sinks_, recompute_;
};

}  // namespace

Result<std::unique_ptr<const DocumentContext>> make_epic(const OptionValues& options) {
  return std::unique_ptr<const DocumentContext>(
      std::make_unique<Epic>(options.integer("sinks"), options.integer("recompute")));
}

}  // namespace millrace
