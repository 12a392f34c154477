// Selective Context (Li et al., 2023, Compressing Context to Enhance Inference Efficiency of Large Language Models):
// the self-information of a unit of text is the sum over its tokens, and the units below a percentile are dropped.
// Units are tokens, words or sentences; tokens that must remain belong to none.
//
//   tokens   <s>  Tom    my  went   to   the   park        ratio 0.5 drops to, the
//   units      -  7.1 + 0.4   3.0  0.6   0.9    2.2        of five words, floor(0.5 * 5) = 2
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "prompt/compression_task.h"
#include "prompt/compressors/factories.h"

namespace millrace {
namespace {

struct SelectiveOptions {
  double ratio = 0;
  TextUnit unit = TextUnit::word;
  int64_t keep_last = 0;
  int64_t most = 0;  // tokens
  double rate = 0;   // share of the tokens that may be dropped that remains; 0: `ratio` of the units are dropped
  PromptScope scope = PromptScope::all;
  std::string model;
};

// The order in which units are dropped: the least information first, ties by position.
std::vector<size_t> by_information(const std::vector<TokenRange>& units, std::span<const float> scores) {
  std::vector<double> information;
  for (const TokenRange& unit : units) {
    const auto own = scores.subspan(static_cast<size_t>(unit.first), static_cast<size_t>(unit.count));
    information.push_back(std::accumulate(own.begin(), own.end(), 0.0));
  }
  std::vector<size_t> order(units.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t unit) { return std::pair(information[unit], unit); });
  return order;
}

class SelectiveContext final : public PromptCompressor {
 public:
  explicit SelectiveContext(SelectiveOptions options) : options_(std::move(options)) {}

  PromptNeeds needs() const override { return kNeedsSelfInformation; }
  std::string model() const override { return options_.model; }
  PromptScope scope() const override { return options_.scope; }

  Result<PromptRest> compress(const PromptView& prompt, PromptScores& models, int64_t budget) const override {
    MILLRACE_TRY(const auto scores, models.self_information(options_.model, prompt.tokens));
    const std::vector<char> fixed = with_last_fixed(prompt.fixed, options_.keep_last);
    const std::vector<TokenRange> units = split_units(prompt.texts, fixed, options_.unit);
    const bool any_fixed = std::ranges::count(fixed, char{1}) > 0;
    const size_t droppable = any_fixed || units.empty() ? units.size() : units.size() - 1;  // a prompt is never empty
    const bool by_tokens = options_.rate > 0;
    const auto wanted = by_tokens ? 0 : static_cast<size_t>(options_.ratio * static_cast<double>(units.size()));
    int64_t most = std::min(budget, options_.most), left = std::ssize(prompt.tokens);
    if (by_tokens) {
      const auto free = static_cast<double>(std::ranges::count(fixed, char{0}));
      most =
          std::min(most, left - static_cast<int64_t>(free) + static_cast<int64_t>(std::llround(options_.rate * free)));
    }
    std::vector<char> dropped(prompt.tokens.size());
    const std::vector<size_t> order = by_information(units, scores);
    for (size_t i = 0; i < droppable && (i < wanted || left > most); ++i) {
      const TokenRange& unit = units[order[i]];
      std::fill_n(dropped.begin() + unit.first, unit.count, char{1});
      left -= unit.count;
    }
    return PromptRest{remaining(dropped)};
  }

 private:
  SelectiveOptions options_;
};

}  // namespace

Result<std::unique_ptr<PromptCompressor>> make_selective_context(const OptionValues& options) {
  SelectiveOptions chosen;
  chosen.ratio = options.number("ratio");
  chosen.keep_last = options.integer("keep_last");
  MILLRACE_TRY(chosen.unit, find_text_unit(options.text("unit")));
  const int64_t most = options.integer("tokens");
  chosen.most = most > 0 ? most : std::numeric_limits<int64_t>::max();
  chosen.rate = options.number("rate");
  MILLRACE_TRY(chosen.scope, find_prompt_scope(options.text("scope")));
  chosen.model = options.text("model");
  return std::unique_ptr<PromptCompressor>(std::make_unique<SelectiveContext>(std::move(chosen)));
}

}  // namespace millrace
