// Acceptance: chooses the token at a position where one or more tokens were drafted. If the chosen token was drafted,
// the logits row computed after it is valid, and the stream continues there without another step. Each rule is one file
// under acceptance/ and one entry in builtin.cc. Rules are immutable and may be used by several threads.
//
//   p   the final distribution of the position: the row's candidates after the stream's sampling steps
//   q   the distribution from which each drafted token was drawn; unknown for drafters that do not draw
//
// Random numbers are functions of the seed, the position and a RandomStream: `draft` draws drafted tokens, `accept`
// decides on the i-th drafted token, `residual` draws if none was accepted, and `token` draws if nothing was drafted.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/registry.h"
#include "flow/sequence.h"
#include "millrace/token.h"
#include "speculate/draft_odds.h"

namespace millrace {

// A token drafted for one position. All tokens drafted for a position follow the same tokens; those with odds were
// drawn independently of each other.
struct DraftedToken {
  TokenId token = 0;
  const DraftOdds* odds = nullptr;  // null: unknown, treated as a q with probability 1 for this token
};

class Acceptance {
 public:
  virtual ~Acceptance() = default;
  // true: the rule always takes the token that plain sampling draws, and choose() is not called.
  virtual bool exact() const { return false; }
  // true: draft models draw with separate random numbers, and choose() receives their odds. false: they draw with the
  // numbers of plain sampling, so that both models often draw the same token.
  virtual bool needs_odds() const { return false; }
  // `row`: at least two candidates. `drafted`: at least one token. `scratch`: memory for one number a candidate.
  virtual TokenId choose(SamplingRow& row, std::span<const DraftedToken> drafted,
                         std::vector<double>& scratch) const = 0;
};

// Returns true if drafted tokens a and b are equal and follow equal tokens. Branches that were drawn independently may
// be equal. Index -1: the stream's last token.
inline bool same_path(const Draft& draft, int64_t a, int64_t b) {
  while (a != b) {
    if (a < 0 || b < 0 || draft.tokens[static_cast<size_t>(a)] != draft.tokens[static_cast<size_t>(b)]) return false;
    a = draft.parent(a);
    b = draft.parent(b);
  }
  return true;
}

// Calls visit(i) for each of the first `count` drafted tokens that follows drafted token `at` or a later token with the
// same path as `at`. visit() returns false to stop.
template <typename Visit>
void visit_children(const Draft& draft, int64_t at, int64_t count, Visit visit) {
  const int64_t end = draft.candidates(count);
  for (int64_t i = at + 1; i < end; ++i)
    if (same_path(draft, draft.parent(i), at) && !visit(i)) return;
}

// Returns the index of the drafted token that is kept when `token` is chosen after drafted token `at` (-1: the stream's
// last token), among the first `count`. Returns -1 if there is none, and the draft ends.
inline int64_t kept_child(const Draft& draft, int64_t at, int64_t count, TokenId token) {
  int64_t kept = -1;
  visit_children(draft, at, count, [&](int64_t i) {
    if (draft.tokens[static_cast<size_t>(i)] == token) kept = i;
    return kept < 0;
  });
  return kept;
}

using AcceptanceFactory = Result<std::unique_ptr<Acceptance>> (*)(const OptionValues& options);
const Registry<AcceptanceFactory>& acceptances();

// `text` is NAME[:key=value,...]. Errors (user): unknown name or option.
Result<std::unique_ptr<Acceptance>> make_acceptance(std::string_view text);

}  // namespace millrace
