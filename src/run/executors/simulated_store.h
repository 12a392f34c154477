// The prefix store of a simulation: an index of stored blocks, and a disk that reads them one load after the other at
// the cost model's speed. Writing takes no time: it happens in parallel with the steps, and no stream waits for it.
#pragma once

#include <memory>

#include "base/clock.h"
#include "kv/tiers/prefix_store.h"
#include "schedule/cost_model.h"

namespace millrace {

// `busy_until_ns`: when the disk's last load ends; the store updates it. The references must outlive the store.
std::unique_ptr<PrefixStore> make_simulated_store(ManualClock& clock, const CostModel& cost, int64_t blocks,
                                                  int64_t block_tokens, int64_t& busy_until_ns);

}  // namespace millrace
