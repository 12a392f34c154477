// The prefix store of a simulation: which blocks it holds, and a disk that reads them one load after the other at the
// cost model's speed. Writing takes no time: it happens beside the steps, and nobody waits for it.
#pragma once

#include <memory>

#include "base/clock.h"
#include "kv/tiers/prefix_store.h"
#include "schedule/cost_model.h"

namespace millrace {

// `busy_until_ns` is when the disk's last load ends, and is kept up to date. All of them must outlive it.
std::unique_ptr<PrefixStore> make_simulated_store(ManualClock& clock, const CostModel& cost, int64_t blocks,
                                                  int64_t block_tokens, int64_t& busy_until_ns);

}  // namespace millrace
