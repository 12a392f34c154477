#include "evaluate/pattern_search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "evaluate/scorer.h"
#include "evaluate/window_search.h"
#include "models/kept_mass_observer.h"

namespace millrace {
namespace {

constexpr int64_t kDivisions = 4;  // of the blocks of lines, into vertical and slash ones

// Of every head what the pattern would keep, while the model attends to all keys.
class HeadMassMeter final : public ForwardObserver {
 public:
  explicit HeadMassMeter(ModelRunner& runner) : runner_(runner) { runner_.hooks().add(*this); }
  ~HeadMassMeter() override { runner_.hooks().remove(*this); }
  HeadMassMeter(const HeadMassMeter&) = delete;
  HeadMassMeter& operator=(const HeadMassMeter&) = delete;

  const std::vector<KeptMass>& heads() const { return heads_; }
  void queries(const AttentionInput& in) override {
    const auto first = static_cast<size_t>(in.kv.layout().heads_before(in.layer.layer));
    const auto count = static_cast<size_t>(in.layer.kv_heads);
    heads_.resize(std::max(heads_.size(), first + count));
    observe_kept_mass(in.batch, in.layer, in.kernels, in.kv, in.q, runner_.limits().context,
                      {std::span(heads_).subspan(first, count), true}, in.tiles);
  }

 private:
  ModelRunner& runner_;
  std::vector<KeptMass> heads_;
};

ChosenPatterns mean_of(std::span<const std::vector<PatternGain>> gains, std::span<const size_t> chosen) {
  ChosenPatterns out;
  const auto heads = static_cast<double>(gains.size());
  for (size_t h = 0; h < gains.size(); ++h) {
    const PatternGain& gain = gains[h][chosen[h]];
    out.heads.push_back(gain.head);
    out.mass += gain.mass / heads;
    out.keys += gain.keys / heads;
  }
  return out;
}

}  // namespace

std::string PatternSearchOptions::options() const {
  return fmt::format("block={},sinks={},window={},last={}", block, sinks, window, last);
}

std::string ChosenPatterns::text() const { return fmt::format("{}", fmt::join(heads, ".")); }

// A query with lines sees two blocks at each distance, and those since the last finding that its window does not reach,
// of which the mean is taken.
std::vector<std::string> candidate_heads(const PatternSearchOptions& options) {
  std::vector<std::string> out = {fmt::format("b{}", options.blocks),
                                  fmt::format("a{}", options.window + options.blocks)};
  const int64_t since = std::max<int64_t>(0, options.last - options.window);
  const int64_t mean = (since * (since + 1) + options.last) / (2 * options.last);
  const int64_t lines = std::max<int64_t>(0, options.blocks - mean);
  for (int64_t division = 0; division <= kDivisions; ++division) {
    const int64_t slash = lines * division / (2 * kDivisions);
    const std::string head = fmt::format("v{}+{}", lines - 2 * slash, slash);
    if (std::ranges::find(out, head) == out.end()) out.push_back(head);
  }
  return out;
}

ChosenPatterns choose_patterns(std::span<const std::vector<PatternGain>> gains) {
  std::vector<size_t> chosen;
  for (const auto& head : gains)
    chosen.push_back(static_cast<size_t>(std::ranges::max_element(head, {}, &PatternGain::mass) - head.begin()));
  return mean_of(gains, chosen);
}

ChosenPatterns same_pattern(std::span<const std::vector<PatternGain>> gains) {
  ChosenPatterns best;
  for (size_t p = 0; p < gains.front().size(); ++p) {
    ChosenPatterns all = mean_of(gains, std::vector<size_t>(gains.size(), p));
    if (best.heads.empty() || all.mass > best.mass) best = std::move(all);
  }
  return best;
}

Result<std::vector<std::vector<PatternGain>>> measure_patterns(const std::shared_ptr<const LanguageModel>& model,
                                                               std::span<const TokenId> tokens,
                                                               const PatternSearchOptions& options) {
  MILLRACE_TRY_VOID(check_window_layers(model->parts().model->spec(), options.context, "pattern-search"));
  MILLRACE_TRY_VOID(check_text_length(std::ssize(tokens), options.context));
  const auto windows = chunk_windows(std::ssize(tokens), options.context);
  std::vector<std::vector<PatternGain>> gains;
  for (const std::string& head : candidate_heads(options)) {
    const std::string use = fmt::format("attention=minference:{},heads={},phase=decode", options.options(), head);
    MILLRACE_TRY(const auto scorer,
                 Scorer::create(model, {.threads = options.threads, .context = options.context, .kernels = {use}}));
    const HeadMassMeter meter(scorer->runner());
    MILLRACE_TRY_VOID(scorer->run(tokens, windows, -1, [](std::span<const ScoredRow>) { return Result<void>(); }));
    gains.resize(meter.heads().size());
    for (size_t h = 0; h < gains.size(); ++h)
      gains[h].push_back({head, meter.heads()[h].mean_mass(), meter.heads()[h].mean_keys()});
  }
  return gains;
}

}  // namespace millrace
