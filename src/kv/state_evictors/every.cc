// Like `last`, and also takes and keeps a copy at every k-th multiple of the stride, in prompts and in answers. A
// prompt that leaves a stored one anywhere then computes at most k strides again. Evicts the least recently used copy.
#include "kv/state_evictors/factories.h"

namespace millrace {
namespace {

class EveryState final : public StateEvictor {
 public:
  explicit EveryState(int64_t k) : k_(k) {}
  bool takes(int64_t multiple) const override { return multiple % k_ == 0; }
  bool keeps(StatePlace place, int64_t multiple) const override {
    return place != StatePlace::answer || takes(multiple);
  }
  size_t victim(std::span<const StateUse> held) const override { return oldest_state(held); }

 private:
  int64_t k_;
};

}  // namespace

std::unique_ptr<StateEvictor> make_every_state(const OptionValues& options) {
  return std::make_unique<EveryState>(options.integer("k"));
}

}  // namespace millrace
