// Keeps the last copy of each prompt and each branch, and only the newest copy of an answer. Evicts the least recently
// used copy.
#include "kv/state_evictors/factories.h"

namespace millrace {
namespace {

class LastStates final : public StateEvictor {
 public:
  bool keeps(StatePlace place, int64_t) const override { return place != StatePlace::answer; }
  size_t victim(std::span<const StateUse> held) const override { return oldest_state(held); }
};

}  // namespace

std::unique_ptr<StateEvictor> make_last_states(const OptionValues&) { return std::make_unique<LastStates>(); }

}  // namespace millrace
