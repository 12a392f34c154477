// LongLLMLingua (Jiang et al., 2024, LongLLMLingua: Accelerating and Enhancing LLMs in Long Context Scenarios via
// Prompt Compression). Parts (documents) are ranked by how likely they make the question, the best are kept and come
// first, and a better document keeps a larger share of its tokens: those that the question makes likelier.
//
//   documents    A      B      C      question      rank: mean log p(question | document)
//   coarse              B      C      question      best first, until coarse * keep tokens
//   fine         C c c  B b           question      shares by rank; tokens by contrastive perplexity (token_pruning.h)
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "prompt/compressors/factories.h"
#include "prompt/pruning_blocks.h"
#include "text/tokenizer.h"

namespace millrace {
namespace {

constexpr const char* kRestriction = " We can get the answer to this question in the given documents.";  // the paper's

struct LongOptions {
  double coarse = 2;
  int64_t segment = 100;  // tokens
  double dynamic = 0;     // the first document's share of kept tokens over the mean, and the last one's under it
  bool contrast = true, reorder = true, restrict = true, recover = false;
};

class LongLlmLingua final : public CompressorWithOptions {
 public:
  LongLlmLingua(CompressionOptions options, LongOptions own) : CompressorWithOptions(std::move(options)), own_(own) {}

  PromptNeeds needs() const override { return kNeedsSelfInformation; }
  bool recovers() const override { return own_.recover; }

  Result<PromptRest> compress(const PromptView& prompt, PromptScores& scores, int64_t budget) const override {
    const CompressionTask task = CompressionTask::create(prompt, options_, budget);
    const auto question =
        prompt.tokens.subspan(static_cast<size_t>(task.question.first), static_cast<size_t>(task.question.count));
    MILLRACE_TRY(std::vector<size_t> parts, ranked_parts(prompt, task, question, scores));
    const auto most = static_cast<int64_t>(std::ceil(own_.coarse * static_cast<double>(task.keep)));
    size_t chosen = 0;
    for (int64_t tokens = 0; chosen < parts.size() && tokens < most; ++chosen)
      tokens += task.parts[parts[chosen]].count;
    parts.resize(chosen);
    std::vector<int64_t> keep = shares(task, parts);
    if (!own_.reorder) sort_by_place(parts, keep);
    const auto blocks = pruning_blocks(task, parts, keep);
    const PruningOptions pruning{options_.model, own_.segment, own_.contrast ? question : std::span<const TokenId>()};
    MILLRACE_TRY(auto kept, prune_tokens(prompt, blocks, pruning, scores));
    return PromptRest{std::move(kept)};
  }

 private:
  // All parts, the best first. Without a question, in their order.
  Result<std::vector<size_t>> ranked_parts(const PromptView& prompt, const CompressionTask& task,
                                           std::span<const TokenId> question, PromptScores& scores) const {
    std::vector<size_t> order(task.parts.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (question.empty() || order.size() < 2) return order;
    std::vector<TokenId> asked(question.begin(), question.end());
    if (own_.restrict && prompt.tokenizer) {
      const auto more = prompt.tokenizer->encode(kRestriction, {.add_special = false, .parse_special = false});
      asked.insert(asked.end(), more.begin(), more.end());
    }
    std::vector<double> surprise;
    for (const TokenRange& part : task.parts) {
      std::vector<TokenId> tokens = leading_tokens(prompt);
      const auto own = prompt.tokens.subspan(static_cast<size_t>(part.first), static_cast<size_t>(part.count));
      tokens.insert(tokens.end(), own.begin(), own.end());
      tokens.insert(tokens.end(), asked.begin(), asked.end());
      MILLRACE_TRY(surprise.emplace_back(), mean_information(options_.model, tokens, std::ssize(asked), scores));
    }
    std::ranges::sort(order, {}, [&](size_t i) { return std::pair(surprise[i], i); });
    return order;
  }

  // The number of tokens that remain of each part: tau + (1 - 2 rank / parts) * dynamic of its tokens.
  std::vector<int64_t> shares(const CompressionTask& task, const std::vector<size_t>& parts) const {
    std::vector<int64_t> sizes;
    for (const size_t part : parts) sizes.push_back(task.parts[part].count);
    const auto all = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    const int64_t total = std::min(task.keep, all);
    const double mean = all > 0 ? static_cast<double>(total) / static_cast<double>(all) : 0;
    std::vector<int64_t> out;
    for (size_t rank = 0; rank < sizes.size(); ++rank) {
      const double tilt = 1 - 2 * static_cast<double>(rank) / static_cast<double>(sizes.size());
      const double share = std::clamp(mean + tilt * own_.dynamic, 0.0, 1.0);
      out.push_back(std::llround(share * static_cast<double>(sizes[rank])));
    }
    fit_to_total(out, sizes, total);
    return out;
  }

  static void sort_by_place(std::vector<size_t>& parts, std::vector<int64_t>& keep) {
    std::vector<std::pair<size_t, int64_t>> both;
    for (size_t i = 0; i < parts.size(); ++i) both.emplace_back(parts[i], keep[i]);
    std::ranges::sort(both);
    for (size_t i = 0; i < parts.size(); ++i) std::tie(parts[i], keep[i]) = both[i];
  }

  const LongOptions own_;
};

}  // namespace

Result<std::unique_ptr<PromptCompressor>> make_longllmlingua(const OptionValues& options) {
  MILLRACE_TRY(auto shared, CompressionOptions::read(options, true, true));
  const LongOptions own{.coarse = options.number("coarse"),
                        .segment = options.integer("segment"),
                        .dynamic = options.number("dynamic"),
                        .contrast = options.boolean("contrast"),
                        .reorder = options.boolean("reorder"),
                        .restrict = options.boolean("restrict"),
                        .recover = options.boolean("recover")};
  return std::unique_ptr<PromptCompressor>(std::make_unique<LongLlmLingua>(std::move(shared), own));
}

}  // namespace millrace
