// LLMLingua (Jiang et al., 2023, LLMLingua: Compressing Prompts for Accelerated Inference of Large Language Models).
// A budget controller keeps the parts (demonstrations) with the highest perplexity, `coarse` times as many tokens as
// may remain; then tokens are pruned segment by segment (prompt/token_pruning.h). The question remains whole.
//
//   parts        A 2.1   B 3.4   C 2.8   question         perplexity of each part alone, in nats a token
//   controller           B       C       question         highest first, until coarse * keep tokens
//   pruning              b       c       question         the tokens with the most information, in order
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "prompt/compressors/factories.h"
#include "prompt/pruning_blocks.h"

namespace millrace {
namespace {

class LlmLingua final : public CompressorWithOptions {
 public:
  LlmLingua(CompressionOptions options, double coarse, int64_t segment)
      : CompressorWithOptions(std::move(options)), coarse_(coarse), segment_(segment) {}

  PromptNeeds needs() const override { return kNeedsSelfInformation; }

  Result<PromptRest> compress(const PromptView& prompt, PromptScores& scores, int64_t budget) const override {
    const CompressionTask task = CompressionTask::create(prompt, options_, budget);
    MILLRACE_TRY(const std::vector<size_t> parts, chosen_parts(prompt, task, scores));
    std::vector<int64_t> sizes;
    for (const size_t part : parts) sizes.push_back(task.parts[part].count);
    const auto all = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    const int64_t total = std::min(task.keep, all);
    std::vector<int64_t> keep;
    for (int64_t i = 0, before = 0; i < std::ssize(sizes); before += sizes[static_cast<size_t>(i++)])
      keep.push_back(total * (before + sizes[static_cast<size_t>(i)]) / all - total * before / all);
    const auto blocks = joined_blocks(task, pruning_blocks(task, parts, keep));
    MILLRACE_TRY(auto kept, prune_tokens(prompt, blocks, {options_.model, segment_, {}}, scores));
    return PromptRest{std::move(kept)};
  }

 private:
  // The parts that remain to be pruned, ascending.
  Result<std::vector<size_t>> chosen_parts(const PromptView& prompt, const CompressionTask& task,
                                           PromptScores& scores) const {
    std::vector<size_t> order(task.parts.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto most = static_cast<int64_t>(std::ceil(coarse_ * static_cast<double>(task.keep)));
    if (task.droppable <= most || order.size() < 2) return order;
    std::vector<double> perplexity;
    for (const TokenRange& part : task.parts) {
      std::vector<TokenId> tokens = leading_tokens(prompt);
      const auto own = prompt.tokens.subspan(static_cast<size_t>(part.first), static_cast<size_t>(part.count));
      tokens.insert(tokens.end(), own.begin(), own.end());
      MILLRACE_TRY(perplexity.emplace_back(), mean_information(options_.model, tokens, part.count, scores));
    }
    std::ranges::sort(order, {}, [&](size_t i) { return std::pair(-perplexity[i], i); });
    size_t chosen = 0;
    for (int64_t tokens = 0; chosen < order.size() && tokens < most; ++chosen)
      tokens += task.parts[order[chosen]].count;
    order.resize(chosen);
    std::ranges::sort(order);
    return order;
  }

  const double coarse_;
  const int64_t segment_;
};

}  // namespace

Result<std::unique_ptr<PromptCompressor>> make_llmlingua(const OptionValues& options) {
  MILLRACE_TRY(auto shared, CompressionOptions::read(options, true, true));
  return std::unique_ptr<PromptCompressor>(
      std::make_unique<LlmLingua>(std::move(shared), options.number("coarse"), options.integer("segment")));
}

}  // namespace millrace
