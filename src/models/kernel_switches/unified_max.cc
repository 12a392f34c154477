// One maximum for every softmax of attention (Hong et al., 2023, "FlashDecoding++"): AttentionArgs::unify. Bits differ
// from those of the default, because partials join without scaling; they are as independent of batch, threads and
// chunks.
#include "models/kernel_switches/records.h"

namespace millrace {
namespace {

Result<void> set_unified_max(const OptionValues& options, ForwardSwitches& switches) {
  switches.attention.unify = true;
  switches.attention.unified_max = static_cast<float>(options.number("max"));
  return {};
}

}  // namespace

extern const KernelSwitch kUnifiedMax = {.set = set_unified_max};

}  // namespace millrace
