// Experts with a fixed capacity, as engines of static shapes run them (Lepikhin et al., 2020, "GShard"): the baseline
// of the grouped products that a pass runs, which neither pad nor drop (Gale et al., 2022, "MegaBlocks"). A dropped
// token keeps its residual. Which tokens are dropped depends on the batch, so no engine takes this; `bench` and
// `perplexity` do.
#include <algorithm>
#include <cmath>

#include "models/kernel_switches/records.h"

namespace millrace {
namespace {

Result<void> set_padded_experts(const OptionValues& options, ForwardSwitches& switches) {
  switches.expert_capacity = options.number("capacity");
  return {};
}

}  // namespace

int64_t padded_rows(double capacity, int64_t pairs, int64_t experts) {
  const double rows = std::ceil(capacity * static_cast<double>(pairs) / static_cast<double>(experts));
  return std::clamp<int64_t>(static_cast<int64_t>(rows), 1, std::max<int64_t>(1, pairs));
}

extern const KernelSwitch kPaddedExperts = {.set = set_padded_experts};

}  // namespace millrace
