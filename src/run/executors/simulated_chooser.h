// SimulatedChooser: pseudorandom tokens until each request's known length; no text. Stateless.
#pragma once

#include "base/philox.h"
#include "run/executors/token_chooser.h"

namespace millrace {

inline constexpr int64_t kSimulatedVocab = 1 << 20;

class SimulatedChooser final : public TokenChooser {
 public:
  Result<void> begin(StreamRef) const override { return {}; }
  // A pure function of stream and position, so a preempted stream continues with the same tokens.
  Result<bool> choose(StreamRef stream, int64_t, TokenEvent& event) override {
    const Sequence& s = stream.sequence;
    const auto draw = philox4x32(s.request.sampling.seed, static_cast<uint64_t>(s.generated()), s.id);
    event.token = static_cast<TokenId>(draw[0] % static_cast<uint32_t>(kSimulatedVocab));
    return s.request.known_tokens >= 0 && s.generated() + 1 >= s.request.known_tokens;
  }
  void flush(StreamRef, TokenEvent&) override {}
};

}  // namespace millrace
