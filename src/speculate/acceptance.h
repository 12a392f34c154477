// Acceptance: decides how many of a stream's drafted tokens are kept. The step runner samples from the rows of a draft
// in order; after each token the acceptance decides whether the next row, which was computed after the drafted token,
// is valid. One file each under acceptance/ and one line in builtin.cc. Immutable, so that several threads may ask.
#pragma once

#include <memory>
#include <string_view>

#include "base/registry.h"
#include "millrace/token.h"

namespace millrace {

class Acceptance {
 public:
  virtual ~Acceptance() = default;
  // `sampled` was appended to the stream where `drafted` had been proposed. True: the next drafted token is considered.
  virtual bool keeps(TokenId drafted, TokenId sampled) const = 0;
};

using AcceptanceFactory = Result<std::unique_ptr<Acceptance>> (*)(const OptionValues& options);
const Registry<AcceptanceFactory>& acceptances();

// `text` is NAME[:key=value,...]. Errors (user): unknown name or option.
Result<std::unique_ptr<Acceptance>> make_acceptance(std::string_view text);

}  // namespace millrace
