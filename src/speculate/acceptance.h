// Acceptance: decides how many of a stream's drafted tokens are kept. The step runner samples from the rows of a draft
// in order; after each token the acceptance decides whether the next row, which was computed after the drafted token,
// is valid. One file each under acceptance/ and one line in builtin.cc. Immutable, so that several threads may ask.
#pragma once

#include <memory>
#include <string_view>

#include "base/registry.h"
#include "flow/sequence.h"
#include "millrace/token.h"

namespace millrace {

class Acceptance {
 public:
  virtual ~Acceptance() = default;
  // `sampled` was appended to the stream where `drafted` had been proposed. True: the next drafted token is considered.
  virtual bool keeps(TokenId drafted, TokenId sampled) const = 0;
};

// Where a token was sampled behind drafted token `at` (-1: the stream's last token): the drafted token, among the first
// `count`, that is kept for it. -1: none, and the draft ends.
inline int64_t kept_child(const Acceptance& acceptance, const Draft& draft, int64_t at, int64_t count,
                          TokenId sampled) {
  const int64_t end = draft.candidates(count);
  for (int64_t i = at + 1; i < end; ++i)
    if (draft.parent(i) == at && acceptance.keeps(draft.tokens[static_cast<size_t>(i)], sampled)) return i;
  return -1;
}

using AcceptanceFactory = Result<std::unique_ptr<Acceptance>> (*)(const OptionValues& options);
const Registry<AcceptanceFactory>& acceptances();

// `text` is NAME[:key=value,...]. Errors (user): unknown name or option.
Result<std::unique_ptr<Acceptance>> make_acceptance(std::string_view text);

}  // namespace millrace
