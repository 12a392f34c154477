#include "engine/block_ledger.h"

#include <fmt/format.h>

#include <algorithm>

#include "kv/compact_kept.h"
#include "kv/window_groups.h"

namespace millrace {
namespace {

// How often the streams' block tables name each block: in all, and as blocks that are not shared.
struct TableCounts {
  explicit TableCounts(size_t blocks) : held(blocks), own(blocks) {}
  void add(const Sequence& s) {
    for (size_t i = static_cast<size_t>(s.kv.dead_blocks); i < s.kv.blocks.size(); ++i) {
      ++held[static_cast<size_t>(s.kv.blocks[i])];
      own[static_cast<size_t>(s.kv.blocks[i])] += static_cast<int64_t>(i) >= s.kv.shared_blocks;
    }
    if (!s.kv.by_layer) return;
    for (const WindowBlocks& layer : s.kv.windows)
      for (const BlockId block : layer.blocks) {
        ++held[static_cast<size_t>(block)];
        ++own[static_cast<size_t>(block)];
      }
  }
  std::vector<int32_t> held, own;
};

// Of a stream's table in group `g`: the blocks, and how many of them were given back.
std::vector<BlockId>& table_of(KvState& kv, int64_t g) {
  return g == 0 ? kv.blocks : kv.windows[static_cast<size_t>(g - 1)].blocks;
}
int64_t& dead_of(KvState& kv, int64_t g) {
  return g == 0 ? kv.dead_blocks : kv.windows[static_cast<size_t>(g - 1)].dead;
}
// Slots of that group that the stream has filled, given back or not.
int64_t slots_of(const Sequence& s, int64_t g) { return s.computed - s.kv.left_out_of(g); }

// Every slot is free, or held by one stream or the prefix index.
Result<void> check_states(const std::vector<int32_t>& holders, const KvPool& pool) {
  const StatePool& states = pool.states();
  const std::string name = pool.layout().state_name();
  int64_t held = 0;
  for (size_t i = 0; i < holders.size(); ++i) {
    held += holders[i];
    if (holders[i] > 1 || (holders[i] == 1) != states.held(static_cast<StateId>(i)))
      return Error::internal(fmt::format("{}: {} streams hold slot {}, and it is {}", name, holders[i], i,
                                         states.held(static_cast<StateId>(i)) ? "held" : "free"));
  }
  if (held + states.free() != states.slots())
    return Error::internal(fmt::format("{}: {} held + {} free != {}", name, held, states.free(), states.slots()));
  return {};
}

Result<void> check_stream(const Sequence& s, const KvPool& pool) {
  if (s.kv.left_out > 0 && s.prefix.caches)
    return Error::internal(
        fmt::format("stream {}: {} tokens were left out, and it may insert prefixes", s.id, s.kv.left_out));
  if (pool.layout().recurrent() && s.computed > 0 && s.kv.state < 0)
    return Error::internal(fmt::format("stream {}: {} tokens are stored without a recurrent state", s.id, s.computed));
  if (s.phase == StreamPhase::swapped) return {};
  if (pool.blocks_for(s.stored()) > static_cast<int64_t>(s.kv.blocks.size()))
    return Error::internal(
        fmt::format("stream {}: {} tokens are stored in {} blocks", s.id, s.computed, s.kv.blocks.size()));
  for (int64_t g = 1; pool.divided() && g < pool.groups(); ++g)
    if (pool.blocks_for(slots_of(s, g)) > std::ssize(s.kv.windows[static_cast<size_t>(g - 1)].blocks))
      return Error::internal(fmt::format("stream {}: layer {} stores {} tokens in {} blocks", s.id, g, slots_of(s, g),
                                         s.kv.windows[static_cast<size_t>(g - 1)].blocks.size()));
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

void BlockLedger::hold_in(int64_t group, BlockId block) {
  if (group == 0 || pool_.divided()) hold(block);
}

void BlockLedger::drop_in(int64_t group, BlockId block) {
  if (group == 0 || pool_.divided())
    drop(block);
  else
    pool_.group(group).release(block);
}

// The state of a stream without computed tokens may be any slot: the first token sets it to zero.
bool BlockLedger::hold_state(Sequence& s) {
  if (!pool_.states().any() || s.kv.state >= 0) return true;
  const auto state = pool_.states().allocate();
  if (state.ok()) s.kv.state = *state;
  return state.ok();
}

void BlockLedger::prepare(LiveStream& stream, int64_t stored, int64_t tokens) const {
  KvState& kv = stream.sequence.kv;
  kv.blocks.reserve(static_cast<size_t>(pool_.blocks_for(stored)));
  kv.windows.resize(static_cast<size_t>(pool_.groups() - 1));
  for (WindowBlocks& window : kv.windows)
    window.blocks.reserve(static_cast<size_t>(pool_.blocks_for(kv.by_layer ? stored : tokens)));
}

bool BlockLedger::reserve(LiveStream& stream, int64_t tokens) {
  Sequence& s = stream.sequence;
  if (!hold_state(s)) return false;
  const int64_t needed = pool_.blocks_for(tokens - s.kv.left_out);
  while (std::ssize(s.kv.blocks) < std::min(needed, s.kv.dead_blocks)) s.kv.blocks.push_back(0);
  while (static_cast<int64_t>(s.kv.blocks.size()) < needed) {
    auto block = pool_.allocate(stream.range);
    if (!block.ok() && index_ && index_->evict(1) == 1) block = pool_.allocate(stream.range);
    if (!block.ok()) return false;
    hold(*block);
    s.kv.blocks.push_back(*block);
  }
  return pool_.groups() == 1 || reserve_windows(stream, tokens);
}

bool BlockLedger::reserve_windows(LiveStream& stream, int64_t tokens) {
  KvState& kv = stream.sequence.kv;
  kv.windows.resize(static_cast<size_t>(pool_.groups() - 1));
  for (int64_t g = 1; g < pool_.groups(); ++g) {
    const int64_t blocks = pool_.blocks_for(tokens - kv.left_out_of(g));
    WindowBlocks& window = kv.windows[static_cast<size_t>(g - 1)];
    while (std::ssize(window.blocks) < blocks) {
      auto block = pool_.group(g).allocate();
      if (!block.ok() && index_ && index_->evict_window(g)) block = pool_.group(g).allocate();
      if (!block.ok()) return false;
      hold_in(g, *block);
      window.blocks.push_back(*block);
    }
  }
  return true;
}

void BlockLedger::give_back(LiveStream& stream) {
  if (!pool_.gives_back()) return;
  Sequence& s = stream.sequence;
  for (int64_t g = 0; g < pool_.groups(); ++g) {
    KvPool& pool = pool_.group(g);
    std::vector<BlockId>& blocks = table_of(s.kv, g);
    int64_t& dead = dead_of(s.kv, g);
    const int64_t now = std::min(dead_blocks(slots_of(s, g), pool.layout().window, pool.layout().block_tokens),
                                 static_cast<int64_t>(blocks.size()));
    for (; dead < now; ++dead) {
      BlockId& block = blocks[static_cast<size_t>(dead)];
      drop_in(g, block);
      block = 0;
    }
  }
}

void BlockLedger::trim(LiveStream& stream) {
  KvState& kv = stream.sequence.kv;
  // Where a promise is of all layers, this one need not hold it.
  const int64_t kept = kv.by_layer ? 0 : kv.dead_blocks + kv.reserved_blocks;
  const int64_t needed = std::max(pool_.blocks_for(slots_of(stream.sequence, 0)), kept);
  for (; std::ssize(kv.blocks) > needed; kv.blocks.pop_back()) drop(kv.blocks.back());
  for (int64_t g = 1; g <= std::ssize(kv.windows); ++g)
    for (auto& blocks = table_of(kv, g); std::ssize(blocks) > pool_.blocks_for(slots_of(stream.sequence, g));
         blocks.pop_back())
      drop_in(g, blocks.back());
}

bool BlockLedger::adopt(LiveStream& stream, const PrefixMatch& prefix) {
  KvState& kv = stream.sequence.kv;
  if (prefix.state >= 0 && !hold_state(stream.sequence)) {
    for (BlockId block : prefix.blocks) pool_.release(block);
    return false;
  }
  kv.blocks.clear();
  extend(stream, prefix.blocks);
  if (prefix.state >= 0) pool_.states().copy(prefix.state, kv.state);
  kv.windows.resize(prefix.windows.size());
  for (size_t i = 0; i < prefix.windows.size(); ++i) {
    const PrefixMatch::Window& window = prefix.windows[i];
    kv.windows[i].blocks.assign(window.blocks.begin(), window.blocks.end());
    kv.windows[i].dead = window.dead;
  }
  return true;
}

void BlockLedger::extend(LiveStream& stream, std::span<const BlockId> blocks) {
  KvState& kv = stream.sequence.kv;
  for (const BlockId block : blocks) {
    hold(block);
    kv.blocks.push_back(block);
  }
  kv.shared_blocks = std::ssize(kv.blocks);
}

void BlockLedger::cut(LiveStream& stream, int64_t blocks) {
  KvState& kv = stream.sequence.kv;
  for (; std::ssize(kv.blocks) > blocks; kv.blocks.pop_back()) drop(kv.blocks.back());
  kv.shared_blocks = std::min(kv.shared_blocks, blocks);
}

bool BlockLedger::may_share(const Sequence& owner, int64_t tokens) const {
  for (int64_t g = 0; g < pool_.groups(); ++g) {
    const KvLayout& layout = pool_.group(g).layout();
    const int64_t dead = g == 0 ? owner.kv.dead_blocks : owner.kv.windows[static_cast<size_t>(g - 1)].dead;
    if (dead > dead_blocks(tokens, layout.window, layout.block_tokens)) return false;
  }
  return true;
}

// The full blocks that the token behind the first `tokens` sees.
void BlockLedger::share_group(int64_t group, Sequence& owner, Sequence& stream, int64_t full, int64_t tokens) {
  KvPool& pool = pool_.group(group);
  const int64_t dead = dead_blocks(tokens, pool.layout().window, pool.layout().block_tokens);
  std::vector<BlockId>& blocks = table_of(stream.kv, group);
  dead_of(stream.kv, group) = dead;
  for (int64_t i = 0; i < full; ++i) {
    const BlockId block = i < dead ? 0 : table_of(owner.kv, group)[static_cast<size_t>(i)];
    if (i >= dead) pool.share(block);
    if (i >= dead && group == 0) hold(block);
    blocks.push_back(block);
  }
}

void BlockLedger::share(Sequence& owner, LiveStream& stream, int64_t tokens, StateId state) {
  Sequence& s = stream.sequence;
  const int64_t block_tokens = pool_.layout().block_tokens;
  if (pool_.states().any()) {
    if (state < 0 && tokens == owner.computed) state = owner.kv.state;
    if (state >= 0 && hold_state(s))
      pool_.states().copy(state, s.kv.state);
    else if (pool_.layout().prefixes_shared())
      tokens -= tokens % block_tokens;  // behind whole blocks a KV tail begins empty
    else
      return;
  }
  if (!may_share(owner, tokens)) return;
  const int64_t full = tokens / block_tokens;
  s.kv.windows.resize(static_cast<size_t>(pool_.groups() - 1));
  for (int64_t g = 0; g < pool_.groups(); ++g) share_group(g, owner, s, full, tokens);
  owner.kv.shared_blocks = std::max(owner.kv.shared_blocks, full);
  s.kv.shared_blocks = full;
  s.computed = full * block_tokens;
  if (s.computed < tokens && reserve(stream, tokens)) {
    for (int64_t g = 0; g < pool_.groups(); ++g)
      pool_.group(g).copy(table_of(owner.kv, g)[static_cast<size_t>(full)], table_of(s.kv, g).back());
    s.computed = tokens;
  }
  if (s.computed < tokens && pool_.gives_back()) {  // the tokens before may need more blocks than were shared
    const int64_t promised = s.kv.reserved_blocks;
    release(stream);
    s.kv.reserved_blocks = promised;
    s.computed = 0;
  }
  if (s.computed < tokens && !pool_.layout().prefixes_shared()) s.computed = 0;  // the state is ahead of the blocks
}

void BlockLedger::compact(LiveStream& stream) {
  KvState& kv = stream.sequence.kv;
  TokenEviction& eviction = *stream.eviction;
  if (!pool_.layout().codec)  // else KvHome::compact_encoded() has
    compact_kept(pool_, eviction, [&](int64_t g) -> std::span<const BlockId> { return table_of(kv, g); });
  for (int64_t g = 0; g < pool_.layout().tables(); ++g) {
    const int64_t left = stream.sequence.computed - eviction.evicted(eviction.layers() > 1 ? g : 0);
    std::vector<BlockId>& table = table_of(kv, g);
    for (; std::ssize(table) > pool_.blocks_for(left); table.pop_back()) drop(table.back());
  }
}

void BlockLedger::release(LiveStream& stream) {
  release_blocks(stream);
  release_windows(stream);
  KvState& kv = stream.sequence.kv;
  release_marks(stream.sequence);
  if (stream.states.fork_slot >= 0) index_->states().take_back(std::exchange(stream.states.fork_slot, -1));
  if (kv.state >= 0) pool_.states().release(kv.state);
  kv.state = -1;
}

int64_t BlockLedger::mark_states(LiveStream& stream, int64_t own, int64_t drafted) {
  if (!pool_.layout().recurrent()) return drafted;  // a KV tail keeps the rows before drafted ones
  StatePool& states = pool_.states();
  release_marks(stream.sequence);
  std::vector<StateMark>& marks = stream.sequence.kv.marks;
  const int64_t count = std::min(drafted, states.marks() - held_marks_);
  held_marks_ += count;
  for (int64_t i = 0; i < count; ++i) marks.push_back({own - 1 + i, *states.allocate()});
  return count;
}

void BlockLedger::keep_state(LiveStream& stream, int64_t row) {
  KvState& kv = stream.sequence.kv;
  const auto kept = std::ranges::find(kv.marks, row, &StateMark::row);
  if (kept != kv.marks.end()) std::swap(kept->slot, kv.state);
  release_marks(stream.sequence);
}

void BlockLedger::release_marks(Sequence& stream) {
  for (const StateMark& mark : stream.kv.marks) pool_.states().release(mark.slot);
  held_marks_ -= std::ssize(stream.kv.marks);
  stream.kv.marks.clear();
}

void BlockLedger::release_windows(LiveStream& stream) {
  KvState& kv = stream.sequence.kv;
  kv.dead_blocks = 0;
  for (size_t i = 0; i < kv.windows.size(); ++i) {
    WindowBlocks& window = kv.windows[i];
    for (auto b = static_cast<size_t>(window.dead); b < window.blocks.size(); ++b)
      drop_in(static_cast<int64_t>(i) + 1, window.blocks[b]);
    window.blocks.clear();
    window.dead = 0;
  }
}

void BlockLedger::release_blocks(LiveStream& stream) {
  KvState& kv = stream.sequence.kv;
  for (auto i = static_cast<size_t>(kv.dead_blocks); i < kv.blocks.size(); ++i) drop(kv.blocks[i]);
  pool_.close(stream.range);
  kv.blocks.clear();
  kv.shared_blocks = 0;
  kv.reserved_blocks = 0;
}

// Of the other groups: every block is referenced once by each stream and the prefix index that hold it.
Result<void> BlockLedger::check_windows(const StreamTable& streams) const {
  if (pool_.divided()) return {};  // counted with the first
  for (int64_t g = 1; g < pool_.groups(); ++g) {
    const KvPool& pool = pool_.group(g);
    std::vector<int32_t> held(static_cast<size_t>(pool.ids()));
    int64_t expected = index_ ? index_->window_size(g) : 0, counted = 0;
    for (const auto& [id, stream] : streams) {
      const Sequence& s = stream->sequence;
      if (static_cast<size_t>(g) > s.kv.windows.size()) continue;
      const WindowBlocks& window = s.kv.windows[static_cast<size_t>(g - 1)];
      if (std::ssize(window.blocks) < pool.blocks_for(slots_of(s, g)))
        return Error::internal(fmt::format("stream {}: {} tokens are stored in {} blocks of group {}", s.id, s.computed,
                                           window.blocks.size(), g));
      for (auto i = static_cast<size_t>(window.dead); i < window.blocks.size(); ++i)
        ++held[static_cast<size_t>(window.blocks[i])], ++expected;
    }
    for (BlockId block = 0; block < pool.ids(); ++block) {
      counted += pool.references(block);
      if (held[static_cast<size_t>(block)] > pool.references(block))
        return Error::internal(fmt::format("KV block {} of group {}: {} references, {} streams hold it", block, g,
                                           pool.references(block), held[static_cast<size_t>(block)]));
    }
    if (counted != expected)
      return Error::internal(
          fmt::format("KV blocks of group {}: {} references counted, {} held", g, counted, expected));
  }
  return {};
}

Result<void> BlockLedger::check(const StreamTable& streams) const {
  MILLRACE_TRY_VOID(pool_.check());
  MILLRACE_TRY_VOID(check_windows(streams));
  TableCounts tables(static_cast<size_t>(pool_.ids()));
  std::vector<int32_t> states(static_cast<size_t>(pool_.states().slots()));
  for (const auto& [id, stream] : streams) {
    tables.add(stream->sequence);
    MILLRACE_TRY_VOID(check_stream(stream->sequence, pool_));
    for (const StateId slot : {stream->sequence.kv.state, stream->states.fork_slot, stream->load.state})
      if (slot >= 0) ++states[static_cast<size_t>(slot)];
    for (const StateMark& mark : stream->sequence.kv.marks) ++states[static_cast<size_t>(mark.slot)];
  }
  if (index_) index_->states().add_slots(states);
  MILLRACE_TRY_VOID(check_states(states, pool_));
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
