#include "prompt/recovery.h"

#include <algorithm>
#include <limits>

namespace millrace {
namespace {

// The length of the longest beginning of `answer` that is a piece of `text`.
size_t longest_quote(std::span<const TokenId> text, std::span<const TokenId> answer) {
  size_t best = 0;
  for (size_t at = 0; at + best < text.size(); ++at) {
    size_t length = 0;
    while (length < answer.size() && at + length < text.size() && text[at + length] == answer[length]) ++length;
    best = std::max(best, length);
  }
  return best;
}

// The shortest piece of `text` that contains `quote` as a subsequence, the first of equally short ones; empty: none.
std::span<const TokenId> shortest_piece(std::span<const TokenId> text, std::span<const TokenId> quote) {
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  std::vector<size_t> starts(quote.size(), kNone);  // of the latest subsequence quote[0..i] so far: where it begins
  std::span<const TokenId> best;
  for (size_t at = 0; at < text.size(); ++at) {
    for (size_t i = quote.size(); i-- > 0;) {
      if (text[at] != quote[i]) continue;
      starts[i] = i == 0 ? at : starts[i - 1];
    }
    if (text[at] != quote.back() || starts.back() == kNone) continue;
    const size_t length = at + 1 - starts.back();
    if (best.empty() || length < best.size()) best = text.subspan(starts.back(), length);
  }
  return best;
}

}  // namespace

std::vector<TokenId> recover_answer(std::span<const TokenId> original, std::span<const TokenId> compressed,
                                    std::span<const TokenId> answer) {
  std::vector<TokenId> out;
  for (size_t at = 0; at < answer.size();) {
    const size_t length = longest_quote(compressed, answer.subspan(at));
    const auto quote = answer.subspan(at, std::max<size_t>(1, length));
    const auto piece = length < 2 ? quote : shortest_piece(original, quote);
    const auto written = piece.empty() ? quote : piece;
    out.insert(out.end(), written.begin(), written.end());
    at += quote.size();
  }
  return out;
}

}  // namespace millrace
