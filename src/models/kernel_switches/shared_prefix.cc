// A cascade of attention (Ye et al., 2025, "FlashInfer"): attention/shared_prefixes.h.
#include "models/kernel_switches/records.h"

namespace millrace {
namespace {

Result<void> set_shared_prefix(const OptionValues&, ForwardSwitches& switches) {
  switches.attention.shared_prefixes = true;
  return {};
}

}  // namespace

extern const KernelSwitch kSharedPrefix = {.set = set_shared_prefix};

}  // namespace millrace
