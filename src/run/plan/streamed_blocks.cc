#include "run/plan/streamed_blocks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/memory.h"
#include "kv/staged_layers.h"
#include "kv/tiers/layer_file.h"

namespace millrace {
namespace {

constexpr int64_t kTableBytes = 64;  // of one block in the tables of the pool, the ledger and a step

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// What `blocks` blocks take, `resident` of them in memory.
int64_t streamed_cost(const KvLayout& layout, const EngineMemory& memory, KvPoolOptions places, int64_t blocks,
                      int64_t resident) {
  places.resident = resident;
  return kv_pool_bytes(layout, blocks, places) + LayerFile::memory(layout, blocks, resident) +
         blocks * (memory.prefix_block + kTableBytes);
}

}  // namespace

Result<int64_t> plan_streamed_blocks(const KvLayout& layout, const KeyStreamOptions& options,
                                     const MemoryAccounts& accounts, const StreamedTokens& tokens, EngineMemory& memory,
                                     KvPoolOptions& places) {
  if (std::ranges::none_of(layer_turns(layout), [](int8_t turn) { return turn >= 0; }))
    return Error::unsupported("KV tier disk: no layer of the model keeps keys and values of tokens; omit the tier");
  if (options.memory == 0 && accounts.budget() == 0)
    return Error::user("KV tier disk: how much memory may keys take? Give memory=BYTES, or a budget (--memory)");
  int64_t limit = options.memory > 0 ? options.memory : INT64_MAX;
  if (accounts.budget() > 0) limit = std::min(limit, accounts.left() - memory.fixed());
  const int64_t multiple = staged_multiple(layout, sysconf(_SC_PAGESIZE));
  const auto blocks_of = [&](int64_t count) {
    return round_up((count + layout.block_tokens - 1) / layout.block_tokens, multiple);
  };
  int64_t blocks = blocks_of(tokens.wanted);
  const auto cost_of = [&](int64_t resident) { return streamed_cost(layout, memory, places, blocks, resident); };
  if (cost_of(multiple) > limit) blocks = blocks_of(tokens.least);
  if (cost_of(multiple) > limit)
    return Error::resource(
        fmt::format("KV tier disk: {} tokens need {} for keys and values of two layers, and {} is left; raise "
                    "memory= or --memory, "
                    "or lower the context (-c) or the KV tokens (--kv-tokens)",
                    tokens.least, format_bytes(cost_of(multiple)), format_bytes(std::max<int64_t>(0, limit))));
  int64_t fits = 1, most = blocks / multiple;  // in multiples
  while (fits < most) {
    const int64_t middle = most - (most - fits) / 2;
    if (cost_of(middle * multiple) <= limit)
      fits = middle;
    else
      most = middle - 1;
  }
  const int64_t resident = fits * multiple;
  places.resident = resident < blocks ? resident : kAllResident;
  memory.swap += resident < blocks ? LayerFile::memory(layout, blocks, resident) : 0;
  return blocks;
}

}  // namespace millrace
