#include "run/drafting/draft_draw.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "run/executors/executor_stream.h"
#include "sampling/chain.h"
#include "sampling/logprobs.h"
#include "sampling/mask_units.h"

namespace millrace {
namespace {

// The likeliest tokens and their shares.
void weigh(std::span<const float> logits, DraftPick& pick) {
  pick.likely = {};
  pick.share = {};
  std::array<float, std::tuple_size_v<decltype(pick.likely)>> best;
  best.fill(-INFINITY);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > best.back())) continue;
    size_t at = best.size() - 1;
    for (; at > 0 && logits[i] > best[at - 1]; --at) best[at] = best[at - 1], pick.likely[at] = pick.likely[at - 1];
    best[at] = logits[i];
    pick.likely[at] = static_cast<TokenId>(i);
  }
  const double sum = log_sum_exp(logits);
  for (size_t i = 0; i < best.size(); ++i) pick.share[i] = static_cast<float>(std::exp(best[i] - sum));
}

// The chain itself is applied without its tokens being accepted, so penalties do not count the draft. `end`: tokens
// before the one that is drawn.
TokenId drawn_token(const DraftRun& run, int64_t end, std::span<float> logits, SamplingRow& scratch) {
  const Sequence& s = *run.stream;
  SamplerChain& chain = *run.owner->sampler;
  try {
    if (!follows_tokens(s.request)) {
      const auto drawn = chain.sample(logits, end - s.prompt_tokens, scratch);
      return drawn.ok() ? *drawn : 0;
    }
    if (chain.bytes() > kMaxClonedBytes) return 0;
    SamplerChain copy = chain.clone();
    for (int64_t i = s.size(); i < end; ++i) copy.accept(s.token_at(i));
    if (!copy.prepare(mask_units().own)) return 0;
    const auto drawn = copy.sample(logits, end - s.prompt_tokens, scratch);
    return drawn.ok() ? *drawn : 0;
  } catch (...) {  // no exception may leave a worker
    return 0;
  }
}

}  // namespace

bool follows_tokens(const Request& request) {
  return request.constraint.kind != Constraint::Kind::none || request.thinking.tokens >= 0;
}

void draw_next(DraftRun& run, std::span<float> logits, SamplingRow& scratch) {
  if (run.weighs) run.confidence = static_cast<float>(std::exp(std::ranges::max(logits) - log_sum_exp(logits)));
  run.drawn = drawn_token(run, run.first + run.count, logits, scratch);
}

void draw_pick(const DraftRun& run, size_t index, std::span<float> logits, SamplingRow& scratch) {
  const int64_t behind = std::ssize(run.picks) - static_cast<int64_t>(index) - 1;
  draw_beside(run, run.picks[index], run.first + run.count - behind, true, logits, scratch);
}

void draw_beside(const DraftRun& run, DraftPick& pick, int64_t end, bool follows, std::span<float> logits,
                 SamplingRow& scratch) {
  if (run.weighs) weigh(logits, pick);
  const bool draws = follows || !follows_tokens(run.stream->request);
  pick.drawn = draws ? drawn_token(run, end, logits, scratch) : run.weighs ? pick.likely[0] : 0;
  if (!run.weighs) return;
  const auto found = std::ranges::find(pick.likely, pick.drawn);  // another one has at most the last one's share
  const auto at = std::min<size_t>(static_cast<size_t>(found - pick.likely.begin()), pick.share.size() - 1);
  pick.drawn_share = pick.share[at];
}

}  // namespace millrace
