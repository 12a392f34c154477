// CacheBlend (Yao et al., 2024, CacheBlend: Fast Large Language Model Serving for RAG with Cached Knowledge Fusion):
// documents are computed on their own and moved to where they stand, as in KVLink. Then the share `ratio` of each
// one's tokens is computed again, seeing all that comes before: those whose keys and values deviate the most, measured
// in the second layer after a pass of all the document's tokens through the first. The paper filters further in
// every layer; here the second layer's choice holds for all.
#include "context/contexts/factories.h"
#include "context/placements.h"

namespace millrace {
namespace {

class CacheBlend final : public DocumentContext {
 public:
  CacheBlend(int64_t sinks, double ratio) : sinks_(sinks), ratio_(ratio) {}

  ContextPlan plan(std::span<const PromptDocument> documents) const override {
    ContextPlan plan = moved_documents(documents, sinks_);
    for (ContextPart& part : plan.parts)  // one that did not move has seen all before it
      if (part.moved > 0) part.fresh_share = ratio_;
    return plan;
  }

 private:
  int64_t sinks_;
  double ratio_;
};

}  // namespace

Result<std::unique_ptr<const DocumentContext>> make_cacheblend(const OptionValues& options) {
  return std::unique_ptr<const DocumentContext>(
      std::make_unique<CacheBlend>(options.integer("sinks"), options.number("ratio")));
}

}  // namespace millrace
