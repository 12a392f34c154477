#include "run/plan/state_slots.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/memory_accounts.h"

namespace millrace {
namespace {

constexpr int64_t kCopiesEach =
    2;  // per stream: one at the end of its prompt, one at the newest multiple of its answer
constexpr int64_t kMaxBytes = int64_t{1} << 30;

}  // namespace

Result<int64_t> planned_state_copies(const EngineOptions& options, const KvLayout& layout, int64_t streams,
                                     int64_t budget) {
  if (!options.prefix_cache || !layout.recurrent()) return 0;
  const int64_t each = layout.state_bytes();
  if (options.state_cache_bytes == 0)
    return std::min(kCopiesEach * streams, (budget > 0 ? std::min(kMaxBytes, budget / 8) : kMaxBytes) / each);
  const int64_t copies = std::min<int64_t>(options.state_cache_bytes / each, INT32_MAX / 2);
  if (copies > 0) return copies;
  return Error::user(fmt::format("state cache: a copy of this model's recurrent states has {}, got {}; enlarge it",
                                 format_bytes(each), format_bytes(options.state_cache_bytes)));
}

int64_t planned_draft_states(const EngineOptions& options, int64_t longest) {
  const int64_t all = options.max_streams * longest;
  return options.draft_length == "auto" ? std::min(all, std::max(longest, 2 * options.max_streams)) : all;
}

}  // namespace millrace
