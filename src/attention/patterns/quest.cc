// Quest (Tang et al., 2024): a query sees the blocks ("pages") whose keys may have the largest products with it, by the
// bounds of key_bounds.h. Heads that share a KV head choose together, by the sum of theirs. The paper chooses in
// decodes only, and keeps the first two layers whole (first=2); here prompts choose too.
#include "attention/patterns/key_bounds.h"

namespace millrace {

Result<std::unique_ptr<AttentionPattern>> make_quest(const OptionValues& options) {
  return std::unique_ptr<AttentionPattern>(std::make_unique<KeyBounds>(options));
}

}  // namespace millrace
