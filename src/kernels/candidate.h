// A token that may be sampled, with its logit.
#pragma once

#include "millrace/token.h"

namespace millrace {

struct Candidate {
  float logit = 0;
  TokenId token = 0;
};

}  // namespace millrace
