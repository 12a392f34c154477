// Which of a prompt's stored blocks are loaded, and what is known of their importance.
#pragma once

#include <span>
#include <vector>

#include "engine/live_stream.h"
#include "kv/tiers/prefix_store.h"

namespace millrace {

// Returns the indices, ascending, of the blocks of `found` to load: all of them, or the most important share `fetch`,
// always with the first and the last one. Requests with several answers share what is computed of their prompts, and
// get it whole.
std::vector<size_t> choose_blocks(const PrefixStore& store, const LiveStream& stream, std::span<const ChainLink> found,
                                  double fetch);
// The importance observed before the blocks left memory returns with them to the stream, which has computed `first`
// blocks, and from there to the prefix index.
void take_importance(const PrefixStore& store, LiveStream& stream, size_t first, std::span<const ChainLink> blocks);

}  // namespace millrace
