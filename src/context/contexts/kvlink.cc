// KVLink (Yang et al., 2025, KVLink: Accelerating Large Language Models via Efficient KV Cache Reuse): every document
// is computed on its own, at the positions that it has behind the prompt's first tokens, and its keys are then rotated
// to its place in the prompt. So its keys and values can be reused wherever it stands. A model that was trained for it
// has link tokens in its vocabulary: `links` of them for every document, numbered on from `link_token`, are put behind
// it. They see all that comes before, and connect the documents. Their embeddings may also come from a file, for a
// model whose vocabulary lacks them.
#include "context/contexts/factories.h"
#include "context/placements.h"

namespace millrace {
namespace {

class KvLink final : public DocumentContext {
 public:
  KvLink(int64_t sinks, int64_t links, int64_t link_token, const std::string& link_embeddings)
      : sinks_(sinks), links_(links), link_token_(link_token) {
    if (!link_embeddings.empty()) rows_ = {link_embeddings, link_token, links};
  }

  ContextPlan plan(std::span<const PromptDocument> documents) const override {
    return moved_documents(documents, sinks_);
  }

  std::vector<TokenId> links(int64_t index) const override {
    std::vector<TokenId> out;
    for (int64_t i = 0; i < links_; ++i)
      out.push_back(rows_.path.empty() ? static_cast<TokenId>(link_token_ + index * links_ + i) : 0);
    return out;
  }

  const LinkRowsChoice* link_rows() const override { return rows_.path.empty() ? nullptr : &rows_; }

 private:
  int64_t sinks_, links_, link_token_;
  LinkRowsChoice rows_;  // without a path: links are tokens
};

}  // namespace

Result<std::unique_ptr<const DocumentContext>> make_kvlink(const OptionValues& options) {
  const std::string& rows = options.text("link_embeddings");
  if (!rows.empty() && options.integer("links") == 0)
    return Error::user("link_embeddings: give links too, the rows behind each document");
  if (rows.empty() && options.given("links") != options.given("link_token"))
    return Error::user("links and link_token: give both, for a model that was trained with link tokens, or neither");
  return std::unique_ptr<const DocumentContext>(std::make_unique<KvLink>(
      options.integer("sinks"), options.integer("links"), options.integer("link_token"), rows));
}

}  // namespace millrace
