// GatedEvictor: gates of the model's layers choose in the pass (GatedTokens); a decision drops the tokens that they
// have ended. Only a window over the tokens that stay bounds how many these are.
#pragma once

#include <algorithm>
#include <cassert>

#include "kv/token_evictor.h"

namespace millrace {

class GatedEvictor final : public TokenEvictor {
 public:
  // `window`: older tokens that a token sees; 0: all that stay.
  GatedEvictor(TokenGate gate, int64_t window) : gate_(gate), window_(window) {}
  int64_t budget() const override { return window_ > 0 ? window_ + 1 : kUnbounded; }
  bool by_layer() const override { return true; }
  TokenGate gate() const override { return gate_; }
  int64_t window() const override { return window_; }
  void drop(const StoredTokens&, int64_t, std::vector<int32_t>&) const override { assert(false); }

 private:
  TokenGate gate_;
  int64_t window_;
};

}  // namespace millrace
