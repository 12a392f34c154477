// KVLink (Yang et al., 2025, KVLink: Accelerating Large Language Models via Efficient KV Cache Reuse): every document
// is computed on its own, at the positions that it has behind the prompt's first tokens, and its keys are then rotated
// to its place in the prompt. So its keys and values can be reused wherever it stands. A model that was trained for it
// has link tokens in its vocabulary: `links` of them for every document, numbered on from `link_token`, are put behind
// it. They see all that comes before, and connect the documents.
#include "context/contexts/factories.h"
#include "context/placements.h"

namespace millrace {
namespace {

class KvLink final : public DocumentContext {
 public:
  KvLink(int64_t sinks, int64_t links, int64_t link_token) : sinks_(sinks), links_(links), link_token_(link_token) {}

  ContextPlan plan(std::span<const PromptDocument> documents) const override {
    return moved_documents(documents, sinks_);
  }

  std::vector<TokenId> links(int64_t index) const override {
    std::vector<TokenId> out;
    for (int64_t i = 0; i < links_; ++i) out.push_back(static_cast<TokenId>(link_token_ + index * links_ + i));
    return out;
  }

 private:
  int64_t sinks_, links_, link_token_;
};

}  // namespace

Result<std::unique_ptr<const DocumentContext>> make_kvlink(const OptionValues& options) {
  if (options.given("links") != options.given("link_token"))
    return Error::user("links and link_token: give both, for a model that was trained with link tokens, or neither");
  return std::unique_ptr<const DocumentContext>(
      std::make_unique<KvLink>(options.integer("sinks"), options.integer("links"), options.integer("link_token")));
}

}  // namespace millrace
