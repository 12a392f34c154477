#include "engine/block_ledger.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {
namespace {

// How often the streams' block tables name each block: in all, and as blocks that are not shared.
struct TableCounts {
  explicit TableCounts(size_t blocks) : held(blocks), own(blocks) {}
  void add(const Sequence& s) {
    for (size_t i = 0; i < s.kv.blocks.size(); ++i) {
      ++held[static_cast<size_t>(s.kv.blocks[i])];
      own[static_cast<size_t>(s.kv.blocks[i])] += static_cast<int64_t>(i) >= s.kv.shared_blocks;
    }
  }
  std::vector<int32_t> held, own;
};

// Every slot is free, or held by one stream.
Result<void> check_states(const std::vector<int32_t>& holders, const StatePool& states) {
  int64_t held = 0;
  for (size_t i = 0; i < holders.size(); ++i) {
    held += holders[i];
    if (holders[i] > 1 || (holders[i] == 1) != states.held(static_cast<StateId>(i)))
      return Error::internal(fmt::format("recurrent state {}: {} streams hold it, and it is {}", i, holders[i],
                                         states.held(static_cast<StateId>(i)) ? "held" : "free"));
  }
  if (held + states.free() != states.slots())
    return Error::internal(
        fmt::format("recurrent states: {} held + {} free != {}", held, states.free(), states.slots()));
  return {};
}

Result<void> check_stream(const Sequence& s, const KvPool& pool) {
  if (s.kv.left_out > 0 && s.prefix.caches)
    return Error::internal(
        fmt::format("stream {}: {} tokens were left out, and it may insert prefixes", s.id, s.kv.left_out));
  if (pool.layout().recurrent() && s.computed > 0 && s.kv.state < 0)
    return Error::internal(fmt::format("stream {}: {} tokens are stored without a recurrent state", s.id, s.computed));
  if (pool.blocks_for(s.stored()) > static_cast<int64_t>(s.kv.blocks.size()) && s.phase != StreamPhase::swapped)
    return Error::internal(
        fmt::format("stream {}: {} tokens are stored in {} blocks", s.id, s.computed, s.kv.blocks.size()));
  return {};
}

}  // namespace

BlockLedger::BlockLedger(KvPool& pool, PrefixIndex* index)
    : pool_(pool), index_(index), holders_(static_cast<size_t>(pool.ids()), 0) {}

void BlockLedger::hold(BlockId block) {
  if (holders_[static_cast<size_t>(block)]++ == 0) ++held_blocks_;
}

void BlockLedger::drop(BlockId block) {
  if (--holders_[static_cast<size_t>(block)] == 0) --held_blocks_;
  pool_.release(block);
}

// The state of a stream without computed tokens may be any slot: the first token sets it to zero.
bool BlockLedger::hold_state(Sequence& s) {
  if (!pool_.states().any() || s.kv.state >= 0) return true;
  const auto state = pool_.states().allocate();
  if (state.ok()) s.kv.state = *state;
  return state.ok();
}

bool BlockLedger::reserve(LiveStream& stream, int64_t tokens) {
  Sequence& s = stream.sequence;
  if (!hold_state(s)) return false;
  while (static_cast<int64_t>(s.kv.blocks.size()) < pool_.blocks_for(tokens - s.kv.left_out)) {
    auto block = pool_.allocate(stream.range);
    if (!block.ok() && index_ && index_->evict(1) == 1) block = pool_.allocate(stream.range);
    if (!block.ok()) return false;
    hold(*block);
    s.kv.blocks.push_back(*block);
  }
  return true;
}

void BlockLedger::trim(LiveStream& stream) {
  KvState& kv = stream.sequence.kv;
  const int64_t needed = std::max(pool_.blocks_for(stream.sequence.stored()), kv.reserved_blocks);
  for (; std::ssize(kv.blocks) > needed; kv.blocks.pop_back()) drop(kv.blocks.back());
}

void BlockLedger::adopt(LiveStream& stream, std::span<const BlockId> blocks) {
  KvState& kv = stream.sequence.kv;
  kv.blocks.assign(blocks.begin(), blocks.end());
  for (BlockId block : blocks) hold(block);
  kv.shared_blocks = std::ssize(blocks);
}

void BlockLedger::share(Sequence& owner, LiveStream& stream, int64_t tokens) {
  Sequence& s = stream.sequence;
  const int64_t block_tokens = pool_.layout().block_tokens;
  if (pool_.states().any()) {
    if (tokens == owner.computed && hold_state(s))
      pool_.states().copy(owner.kv.state, s.kv.state);
    else if (pool_.layout().prefixes_shared())
      tokens -= tokens % block_tokens;  // behind whole blocks a KV tail begins empty
    else
      return;
  }
  const int64_t full = tokens / block_tokens;
  for (int64_t i = 0; i < full; ++i) {
    const BlockId block = owner.kv.blocks[static_cast<size_t>(i)];
    pool_.share(block);
    hold(block);
    s.kv.blocks.push_back(block);
  }
  owner.kv.shared_blocks = std::max(owner.kv.shared_blocks, full);
  s.kv.shared_blocks = full;
  s.computed = full * block_tokens;
  if (s.computed < tokens && reserve(stream, tokens)) {
    pool_.copy(owner.kv.blocks[static_cast<size_t>(full)], s.kv.blocks.back());
    s.computed = tokens;
  }
  if (s.computed < tokens && !pool_.layout().prefixes_shared()) s.computed = 0;  // the state is ahead of the blocks
}

void BlockLedger::compact(LiveStream& stream, std::span<const int32_t> kept) {
  KvState& kv = stream.sequence.kv;
  pool_.compact(kv.blocks, kept);
  const int64_t needed = pool_.blocks_for(std::ssize(kept));
  for (; std::ssize(kv.blocks) > needed; kv.blocks.pop_back()) drop(kv.blocks.back());
}

void BlockLedger::release(LiveStream& stream) {
  release_blocks(stream);
  KvState& kv = stream.sequence.kv;
  end_snapshot(stream, false);
  if (kv.state >= 0) pool_.states().release(kv.state);
  kv.state = -1;
}

bool BlockLedger::take_snapshot(LiveStream& stream) {
  StatePool& states = pool_.states();
  if (!pool_.layout().recurrent()) return true;  // a KV tail keeps the rows before drafted ones
  KvState& kv = stream.sequence.kv;
  const auto slot = states.allocate();
  if (!slot.ok()) return false;
  kv.snapshot = *slot;
  states.copy(kv.state, kv.snapshot);
  return true;
}

bool BlockLedger::end_snapshot(LiveStream& stream, bool restore) {
  KvState& kv = stream.sequence.kv;
  if (kv.snapshot < 0) return false;
  if (restore) pool_.states().copy(kv.snapshot, kv.state);
  pool_.states().release(kv.snapshot);
  kv.snapshot = -1;
  return true;
}

void BlockLedger::release_blocks(LiveStream& stream) {
  KvState& kv = stream.sequence.kv;
  for (BlockId block : kv.blocks) drop(block);
  pool_.close(stream.range);
  kv.blocks.clear();
  kv.shared_blocks = 0;
  kv.reserved_blocks = 0;
}

Result<void> BlockLedger::check(const StreamTable& streams) const {
  MILLRACE_TRY_VOID(pool_.check());
  TableCounts tables(static_cast<size_t>(pool_.ids()));
  std::vector<int32_t> states(static_cast<size_t>(pool_.states().slots()));
  for (const auto& [id, stream] : streams) {
    tables.add(stream->sequence);
    MILLRACE_TRY_VOID(check_stream(stream->sequence, pool_));
    for (const StateId slot : {stream->sequence.kv.state, stream->sequence.kv.snapshot})
      if (slot >= 0) ++states[static_cast<size_t>(slot)];
  }
  MILLRACE_TRY_VOID(check_states(states, pool_.states()));
  int64_t in_use = 0, counted = 0, expected = index_ ? index_->size() : 0, held_blocks = 0;
  for (BlockId block = 0; block < pool_.ids(); ++block) {
    const auto i = static_cast<size_t>(block);
    in_use += pool_.references(block) > 0;
    counted += pool_.references(block);
    expected += tables.held[i];
    held_blocks += tables.held[i] > 0;
    if (tables.held[i] != holders_[i])
      return Error::internal(
          fmt::format("KV block {}: {} streams counted, {} hold it", block, holders_[i], tables.held[i]));
    if (tables.own[i] > 1 || (tables.own[i] == 1 && tables.held[i] > 1))
      return Error::internal(fmt::format("KV block {}: one stream has it unshared, {} hold it", block, tables.held[i]));
  }
  if (in_use + pool_.free_blocks() != pool_.total_blocks()) {
    return Error::internal(
        fmt::format("KV blocks: {} held + {} free != {}", in_use, pool_.free_blocks(), pool_.total_blocks()));
  }
  if (counted != expected)
    return Error::internal(fmt::format("KV blocks: {} references counted, {} held", counted, expected));
  if (held_blocks != held_blocks_)
    return Error::internal(fmt::format("KV blocks: {} held by streams, {} counted", held_blocks, held_blocks_));
  return {};
}

}  // namespace millrace
