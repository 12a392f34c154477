#include "engine/state_copies.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace millrace {

void StateCopies::begin(LiveStream& stream) const {
  Sequence& s = stream.sequence;
  StatePoints& points = stream.states;
  assert(points.fork_slot < 0);
  points = {};
  s.kv.state_at = 0;
  if (!cache_.copies_states() || !s.prefix.caches) return;
  const int64_t stride = cache_.state_stride();
  points.prompt = s.adoptable() / stride * stride;
  const bool answers = s.parent == 0 && stream.answers && !stream.beams && s.generated() == 0;
  points.forks = answers ? std::max(s.request.n, s.request.best_of) - 1 : 0;
  if (points.forks > 0) points.fork = s.prompt_tokens - 1;
  const int64_t known = std::min(points.prompt, cache_.stored_tokens(s) / stride * stride);
  if (known > s.computed) points.branches.push_back(known);
  set_next(stream);
}

void StateCopies::loaded(LiveStream& stream) const { set_next(stream); }

void StateCopies::want(LiveStream& donor, int64_t tokens) const {
  if (!cache_.copies_states() || !donor.sequence.prefix.caches) return;
  std::vector<int64_t>& branches = donor.states.branches;
  if (std::ranges::find(branches, tokens) == branches.end()) branches.push_back(tokens);
  set_next(donor);
}

// The smallest point behind the computed tokens.
void StateCopies::set_next(LiveStream& stream) const {
  Sequence& s = stream.sequence;
  const StatePoints& points = stream.states;
  const int64_t stride = cache_.state_stride();
  int64_t next = INT64_MAX;
  const auto add = [&](int64_t tokens) {
    if (tokens > s.computed) next = std::min(next, tokens);
  };
  add(points.prompt);
  add(points.fork);
  for (const int64_t tokens : points.branches) add(tokens);
  const int64_t multiple = s.computed / stride + 1;
  for (int64_t m = multiple; m * stride < std::min(next, points.prompt); ++m)
    if (cache_.state_evictor().takes(m)) add(m * stride);
  if (s.computed >= points.prompt && !stream.beams) add(multiple * stride);
  s.kv.state_at = next < s.max_total ? next : 0;
}

StatePlace StateCopies::place_of(const LiveStream& stream, int64_t tokens) const {
  const StatePoints& points = stream.states;
  if (std::ranges::find(points.branches, tokens) != points.branches.end()) return StatePlace::branch;
  return tokens == points.prompt ? StatePlace::prompt : StatePlace::answer;
}

void StateCopies::take(LiveStream& stream) {
  Sequence& s = stream.sequence;
  if (s.kv.state_at == 0 || s.computed < s.kv.state_at) return;
  if (s.computed == s.kv.state_at && s.computed % cache_.state_stride() == 0) store(stream);
  if (s.computed == stream.states.fork && stream.states.fork_slot < 0)
    stream.states.fork_slot = cache_.index()->states().lend(slot_values(pool_.states(), s.kv.state));
  set_next(stream);
}

void StateCopies::forked(LiveStream& first, LiveStream& answer) const {
  StatePoints& points = first.states;
  if (--points.forks == 0) cache_.index()->states().take_back(std::exchange(points.fork_slot, -1));
  begin(answer);
}

// The blocks enter the prefix index first, where the copy belongs to the last one.
void StateCopies::store(LiveStream& stream) {
  const Sequence& s = stream.sequence;
  StatePoints& points = stream.states;
  PrefixIndex& index = *cache_.index();
  const std::vector<PrefixTree::Node> path = cache_.insert(stream);
  const int64_t block_tokens = cache_.block_tokens();
  if (std::ssize(path) * block_tokens != s.computed) return;
  if (place_of(stream, s.computed) != StatePlace::answer) cache_.share_state(path.back(), s.kv.state);
  if (!index.store_state_behind(path, slot_values(pool_.states(), s.kv.state))) return;
  const int64_t before = std::exchange(points.last, s.computed);
  if (before == 0) return;
  if (!cache_.state_evictor().keeps(place_of(stream, before), before / cache_.state_stride()))
    index.replace_state_behind(path[static_cast<size_t>(before / block_tokens - 1)]);
}

}  // namespace millrace
