#include "engine/beam_search.h"

#include <algorithm>
#include <cmath>

namespace millrace {

BeamSearch::BeamSearch(BeamOptions options, int64_t kept_top)
    : options_(std::move(options)), kept_top_(std::max<int64_t>(0, kept_top)), live_(1) {}

// Enough for `width` surviving beams even if every end token ranks before them.
int64_t BeamSearch::candidates_wanted() const {
  const auto ends = static_cast<int64_t>(options_.end_tokens.size());
  return std::max(std::max<int64_t>(2, 1 + ends) * options_.width + ends, kept_top_);
}

bool BeamSearch::is_end(TokenId token) const {
  return std::ranges::find(options_.end_tokens, token) != options_.end_tokens.end();
}

double BeamSearch::score(double sum, int64_t tokens) const {
  return tokens == 0 ? 0 : sum / std::pow(static_cast<double>(tokens), options_.length_penalty);
}

// Keeps the `width` best.
void BeamSearch::add(std::vector<Finished>& finished, const Finished& one) const {
  auto worst = std::ranges::min_element(finished, {}, &Finished::score);
  if (static_cast<int64_t>(finished.size()) == options_.width) {
    if (one.score <= worst->score) return;
    finished.erase(worst);
  }
  finished.push_back(one);
}

std::vector<BeamSearch::Choice> BeamSearch::order(std::span<const std::vector<TokenLogprob>> candidates) const {
  std::vector<Choice> out;
  const bool ends_count = tokens_ >= options_.min_tokens;
  for (size_t beam = 0; beam < live_.size(); ++beam)
    for (const TokenLogprob& token : candidates[beam])
      if (ends_count || !is_end(token.token))
        out.push_back({live_[beam].sum + static_cast<double>(token.logprob), static_cast<int64_t>(beam), token});
  std::ranges::stable_sort(
      out, [](const Choice& a, const Choice& b) { return a.sum > b.sum; });  // ties stay by (beam, token)
  const auto kept =
      static_cast<size_t>(std::max<int64_t>(2, 1 + static_cast<int64_t>(options_.end_tokens.size())) * options_.width);
  if (out.size() > kept) out.resize(kept);
  return out;
}

// Whether no live beam can still become a better answer than the worst finished one, by the early-stopping rule.
bool BeamSearch::over(double best_sum) const {
  if (static_cast<int64_t>(finished_.size()) < options_.width) return false;
  if (options_.early_stopping == EarlyStopping::yes) return true;
  const bool longest_is_best = options_.early_stopping == EarlyStopping::never && options_.length_penalty > 0;
  const double attainable = score(best_sum, longest_is_best ? options_.max_tokens : tokens_);
  return std::ranges::min_element(finished_, {}, &Finished::score)->score >= attainable;
}

int64_t BeamSearch::write(int64_t before, const TokenLogprob& token, const std::vector<TokenLogprob>& candidates) {
  const auto kept = std::min(static_cast<size_t>(kept_top_), candidates.size());
  steps_.push_back({before, {token, {candidates.begin(), candidates.begin() + static_cast<ptrdiff_t>(kept)}}});
  return static_cast<int64_t>(steps_.size()) - 1;
}

std::vector<BeamSearch::Next> BeamSearch::advance(std::span<const std::vector<TokenLogprob>> candidates) {
  const std::vector<Choice> choices = order(candidates);
  std::vector<Next> next;
  std::vector<Beam> beams;
  ++tokens_;
  for (size_t rank = 0; rank < choices.size() && static_cast<int64_t>(next.size()) < options_.width; ++rank) {
    const Choice& choice = choices[rank];
    const bool ends = is_end(choice.token.token);
    if (ends && static_cast<int64_t>(rank) >= options_.width) continue;
    const auto beam = static_cast<size_t>(choice.beam);
    const int64_t last = write(live_[beam].last, choice.token, candidates[beam]);
    if (ends) {
      add(finished_, {score(choice.sum, tokens_), last, true});
    } else {
      beams.push_back({choice.sum, last});
      next.push_back({choice.beam, choice.token.token});
    }
  }
  live_ = std::move(beams);
  if (choices.empty() || over(choices.front().sum)) live_.clear(), next.clear();
  return next;
}

std::vector<BeamAnswer> BeamSearch::best(int64_t count) const {
  std::vector<Finished> all = finished_;
  for (const Beam& beam : live_) add(all, {score(beam.sum, tokens_), beam.last, false});
  std::ranges::stable_sort(all, [](const Finished& a, const Finished& b) { return a.score > b.score; });
  if (static_cast<int64_t>(all.size()) > count) all.resize(static_cast<size_t>(count));
  std::vector<BeamAnswer> out;
  for (const Finished& one : all) {
    out.push_back({{}, one.score, one.ended});
    for (int64_t step = one.last; step >= 0; step = steps_[static_cast<size_t>(step)].before)
      out.back().tokens.push_back(steps_[static_cast<size_t>(step)].token);
    std::ranges::reverse(out.back().tokens);
  }
  return out;
}

}  // namespace millrace
