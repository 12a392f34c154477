#include "prompt/token_pruning.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace millrace {
namespace {

constexpr int64_t kScoredTokens = 512;    // of a segment and its context: one window of ModelScores
constexpr int64_t kLeadingTokens = 32;    // at most
constexpr int64_t kQuestionTokens = 128;  // at most

std::vector<TokenId> last_of(std::span<const TokenId> tokens, int64_t count) {
  const auto size = std::ssize(tokens);
  return {tokens.end() - std::clamp<int64_t>(count, 0, size), tokens.end()};
}

void add_tokens(std::vector<TokenId>& to, std::span<const TokenId> more) {
  to.insert(to.end(), more.begin(), more.end());
}

// A token of the prompt that is a line break alone; it separates the question from what follows. None: nothing does.
std::vector<TokenId> line_break(const PromptView& prompt) {
  for (size_t i = 0; i < prompt.texts.size(); ++i)
    if (prompt.texts[i] == "\n") return {prompt.tokens[i]};
  return {};
}

size_t fixed_at_start(const PromptView& prompt) {
  return static_cast<size_t>(std::ranges::find(prompt.fixed, char{0}) - prompt.fixed.begin());
}

class Pruning {
 public:
  Pruning(const PromptView& prompt, const PruningOptions& options, PromptScores& scores)
      : prompt_(prompt),
        options_(options),
        scores_(scores),
        lead_(leading_tokens(prompt)),
        lead_count_(fixed_at_start(prompt)) {
    question_ = last_of(options.question, kQuestionTokens);
    if (!question_.empty()) add_tokens(question_, line_break(prompt));
  }

  Result<void> add(const PruningBlock& block) {
    const auto size = std::ssize(block.tokens);
    if (block.keep >= size) {
      keep(block.tokens);
      return {};
    }
    for (int64_t begin = 0; begin < size && block.keep > 0;) {
      const int64_t end = std::min(size, begin + options_.segment);
      const int64_t most = block.keep * end / size - block.keep * begin / size;
      const std::span segment(block.tokens.data() + begin, static_cast<size_t>(end - begin));
      MILLRACE_TRY_VOID(add_segment(segment, most));
      begin = end;
    }
    return {};
  }

  std::vector<int64_t> take() { return std::move(kept_); }

 private:
  void keep(std::span<const int64_t> tokens) {
    for (const int64_t index : tokens) {
      kept_.push_back(index);
      text_.push_back(prompt_.tokens[static_cast<size_t>(index)]);
    }
  }

  // The information of the segment's tokens after what remained, and before that after `question`.
  Result<std::vector<double>> information(std::span<const TokenId> segment, std::span<const TokenId> question) const {
    const std::span behind_lead = std::span(text_).subspan(std::min(text_.size(), lead_count_));
    std::vector<TokenId> tokens = lead_;
    add_tokens(tokens, question);
    add_tokens(tokens,
               last_of(behind_lead, kScoredTokens - std::ssize(lead_) - std::ssize(question_) - std::ssize(segment)));
    add_tokens(tokens, segment);
    MILLRACE_TRY(const auto scores, scores_.self_information(options_.model, tokens));
    return std::vector<double>(scores.end() - std::ssize(segment), scores.end());
  }

  Result<void> add_segment(std::span<const int64_t> segment, int64_t most) {
    if (most == 0) return {};
    std::vector<TokenId> tokens;
    for (const int64_t index : segment) tokens.push_back(prompt_.tokens[static_cast<size_t>(index)]);
    MILLRACE_TRY(std::vector<double> values, information(tokens, {}));
    if (!question_.empty()) {
      MILLRACE_TRY(const auto asked, information(tokens, question_));
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = std::isfinite(values[i]) && std::isfinite(asked[i]) ? values[i] - asked[i] : 0;
    }
    std::vector<size_t> order(segment.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, {}, [&](size_t i) { return std::pair(-values[i], i); });
    order.resize(static_cast<size_t>(most));
    std::ranges::sort(order);
    std::vector<int64_t> kept;
    for (const size_t i : order) kept.push_back(segment[i]);
    keep(kept);
    return {};
  }

  const PromptView& prompt_;
  const PruningOptions& options_;
  PromptScores& scores_;
  const std::vector<TokenId> lead_;
  const size_t lead_count_;  // tokens of the prompt that lead_ stands for
  std::vector<TokenId> question_;
  std::vector<int64_t> kept_;
  std::vector<TokenId> text_;  // the kept tokens
};

}  // namespace

std::vector<TokenId> leading_tokens(const PromptView& prompt) {
  return last_of(prompt.tokens.first(fixed_at_start(prompt)), kLeadingTokens);
}

Result<std::vector<int64_t>> prune_tokens(const PromptView& prompt, std::span<const PruningBlock> blocks,
                                          const PruningOptions& options, PromptScores& scores) {
  Pruning pruning(prompt, options, scores);
  for (const PruningBlock& block : blocks) MILLRACE_TRY_VOID(pruning.add(block));
  return pruning.take();
}

Result<double> mean_information(const std::string& model, std::span<const TokenId> tokens, int64_t count,
                                PromptScores& scores) {
  MILLRACE_TRY(const auto all, scores.self_information(model, tokens));
  double sum = 0;
  int64_t finite = 0;
  for (size_t i = all.size() - static_cast<size_t>(std::min(count, std::ssize(all))); i < all.size(); ++i) {
    if (!std::isfinite(all[i])) continue;
    sum += static_cast<double>(all[i]);
    ++finite;
  }
  return finite > 0 ? sum / static_cast<double>(finite) : 0;
}

void fit_to_total(std::vector<int64_t>& wanted, std::span<const int64_t> sizes, int64_t total) {
  int64_t sum = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    wanted[i] = std::clamp<int64_t>(wanted[i], 0, sizes[i]);
    sum += wanted[i];
  }
  for (size_t i = 0; i < wanted.size() && sum < total; ++i) {
    const int64_t more = std::min(total - sum, sizes[i] - wanted[i]);
    wanted[i] += more;
    sum += more;
  }
  for (size_t i = wanted.size(); i-- > 0 && sum > total;) {
    const int64_t less = std::min(sum - total, wanted[i]);
    wanted[i] -= less;
    sum -= less;
  }
}

}  // namespace millrace
