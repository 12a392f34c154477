// Sequence: the mutable state of one stream, owned by the engine thread. Plain data; the parts that act on it
// (planner, batch builder, commit) live in schedule/ and engine/.
#pragma once

#include <cstdint>
#include <vector>

#include "millrace/events.h"
#include "millrace/request.h"

namespace millrace {

struct Sequence {
  RequestId id = 0;
  Request request;
  std::vector<TokenId> tokens;   // prompt, then what was generated
  int64_t prompt_tokens = 0;
  int64_t computed = 0;          // tokens whose keys and values are stored
  int64_t cached = 0;            // of those, how many came from the prefix index
  int64_t max_total = 0;         // prompt and generated tokens together never exceed this
  std::vector<int32_t> blocks;   // block table; covers at least `computed` tokens
  int64_t reserved_blocks = 0;   // promised at admission; blocks.size() never exceeds it

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  int64_t generated() const { return size() - prompt_tokens; }
  bool decoding() const { return computed + 1 == size() && computed >= prompt_tokens; }
};

}  // namespace millrace
