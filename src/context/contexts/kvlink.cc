// KVLink (Yang et al., 2025, KVLink: Accelerating Large Language Models via Efficient KV Cache Reuse): every document
// is computed on its own, at the positions that it has behind the prompt's first tokens, and its keys are then rotated
// to its place in the prompt. So its keys and values can be reused wherever it stands. The paper's trained link tokens,
// which connect the documents, are not here: a model that was not trained for them has none.
#include <algorithm>

#include "context/contexts/factories.h"

namespace millrace {
namespace {

class KvLink final : public DocumentContext {
 public:
  explicit KvLink(int64_t sinks) : sinks_(sinks) {}

  std::vector<ContextPart> parts(std::span<const PromptDocument> documents) const override {
    std::vector<ContextPart> out;
    for (const PromptDocument& document : documents) {
      const int64_t sinks = std::min(sinks_, documents.front().begin);
      ContextPart part{document.begin, document.end, document.begin - sinks, {}};
      if (sinks > 0) part.sees.push_back({0, sinks});
      part.sees.push_back({document.begin, document.end});
      out.push_back(std::move(part));
    }
    return out;
  }

 private:
  int64_t sinks_;
};

}  // namespace

Result<std::unique_ptr<const DocumentContext>> make_kvlink(const OptionValues& options) {
  return std::unique_ptr<const DocumentContext>(std::make_unique<KvLink>(options.integer("sinks")));
}

}  // namespace millrace
