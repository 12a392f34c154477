#include "speculate/prediction.h"

#include <algorithm>
#include <cstdlib>
#include <span>

namespace millrace {
namespace {

constexpr int64_t kMaxMatched = 16;  // of the answer's last tokens that are compared
constexpr int64_t kNear = 16;  // one equal token is enough so close to the last known place; elsewhere it takes two

// Where the prediction goes on after the answer's last tokens; -1: nowhere. Of equal matches the nearest to `near`.
int64_t find_place(std::span<const TokenId> prediction, std::span<const TokenId> answer, int64_t near) {
  int64_t best = 0, place = -1;
  for (int64_t next = 1; next <= std::ssize(prediction); ++next) {
    int64_t matched = 0;
    const int64_t most = std::min({kMaxMatched, next, static_cast<int64_t>(std::ssize(answer))});
    while (matched < most && prediction[static_cast<size_t>(next - 1 - matched)] ==
                                 answer[answer.size() - 1 - static_cast<size_t>(matched)])
      ++matched;
    const int64_t away = std::abs(next - near);
    if (matched == 0 || (matched == 1 && away > kNear)) continue;
    if (matched > best || (matched == best && away < std::abs(place - near))) best = matched, place = next;
  }
  return place;
}

}  // namespace

void draft_predicted(Sequence& stream, int64_t most, std::vector<TokenId>& out) {
  const std::vector<TokenId>& prediction = stream.request.prediction;
  if (prediction.empty()) return;
  DraftState& draft = stream.draft;
  const int64_t size = std::ssize(prediction);
  const auto answer = std::span(stream.tokens).subspan(static_cast<size_t>(stream.prompt_tokens));
  for (; draft.aligned < std::ssize(answer); ++draft.aligned) {
    const TokenId token = answer[static_cast<size_t>(draft.aligned)];
    draft.predicting =
        draft.predicting && draft.predicted < size && prediction[static_cast<size_t>(draft.predicted)] == token;
    draft.predicted += draft.predicting;
  }
  if (!draft.predicting) {
    const int64_t place = find_place(prediction, answer, draft.predicted);
    if (place < 0) return;
    draft.predicted = place;
    draft.predicting = true;
  }
  const auto begin = prediction.begin() + draft.predicted;
  out.insert(out.end(), begin, begin + std::min(most, size - draft.predicted));
}

}  // namespace millrace
