#include "engine/prefix_service.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr int64_t kPatience = 4;  // steps that a donor may stall

// Returns true if the stream waits for the prefix store, which takes no longer than the store's deadlines.
bool asks_store(const Sequence& s) {
  return s.phase == StreamPhase::looking_up || (s.phase == StreamPhase::loading && s.prefix.caches);
}

int64_t common_tokens(const Sequence& a, const Sequence& b) {
  const auto most = std::min(a.tokens.size(), b.tokens.size());
  return std::mismatch(a.tokens.begin(), a.tokens.begin() + static_cast<ptrdiff_t>(most), b.tokens.begin()).first -
         a.tokens.begin();
}

}  // namespace

void PrefixService::attach(LiveStream& stream) {
  stream.sequence.kv.shared_blocks = 0;
  if (!wait_for_donor(stream)) find(stream);
}

void PrefixService::find(LiveStream& stream) {
  Sequence& s = stream.sequence;
  if (!s.prefix.caches) return;
  // At least one token is computed, to sample the next one.
  const auto shared =
      cache_.index()->match_groups(std::span(s.tokens).first(static_cast<size_t>(s.adoptable())), s.prefix.scope);
  ledger_.adopt(stream, shared);
  s.computed = s.kv.shared_blocks * cache_.block_tokens();
  lists_.mark_shared(s);
  ledger_.give_back(stream);
  states_.begin(stream);
  loads_.start(stream);
}

// False: no other running stream has more of this one's beginning than the index. What the donor has computed already
// is inserted and found; for the rest this stream waits.
bool PrefixService::wait_for_donor(LiveStream& stream) {
  Sequence& s = stream.sequence;
  const int64_t block_tokens = cache_.block_tokens(), unit = cache_.state_stride();
  if (!s.prefix.caches || s.size() <= unit) return false;
  int64_t indexed = -1, known = -1;
  LiveStream* donor = nullptr;
  for (const StreamPtr& other : lists_.running()) {
    const Sequence& o = other->sequence;
    const bool computes = o.phase == StreamPhase::running || o.phase == StreamPhase::looking_up;
    if (other.get() == &stream || !computes || o.held_back || !o.prefix.caches || o.prefix.scope != s.prefix.scope)
      continue;
    const int64_t lent = o.prompt_apart ? o.prompt_tokens : o.size();
    const int64_t common = std::min({common_tokens(s, o), s.adoptable(), lent}) / unit * unit;
    if (common == 0) continue;
    if (cache_.copies_states() && common <= o.computed) continue;  // its state is that of later tokens
    if (indexed < 0) known = indexed = cache_.known_tokens(s);
    // Blocks that the donor has given back cannot be inserted any more, nor those after them.
    if (common <= known || indexed < o.kv.dead_blocks * block_tokens) continue;
    known = common;
    donor = other.get();
  }
  if (!donor) return false;
  s.prefix.donor = donor->sequence.id;
  s.prefix.donor_tokens = known;
  s.prefix.donor_computed = donor->sequence.shareable();
  s.prefix.donor_stalled = 0;
  s.held_back = true;
  states_.want(*donor, known);
  if (donor->sequence.shareable() >= known) end_wait(stream, true);
  return true;
}

// Finds what the donor has computed so far, and continues without it, or, with `again`, waits for a donor that has
// more.
void PrefixService::end_wait(LiveStream& stream, bool again) {
  Sequence& s = stream.sequence;
  const LiveStream* donor = lists_.find(s.prefix.donor);
  if (donor && (donor->sequence.phase == StreamPhase::running || donor->sequence.phase == StreamPhase::swapping_out))
    cache_.insert(*donor);
  s.prefix.donor = 0;
  s.held_back = false;
  if (again && wait_for_donor(stream)) return;
  find(stream);
  if (s.progress.preemptions == 0) s.prefix.cached = s.computed;
}

void PrefixService::end_waits() {
  for (const StreamPtr& stream : lists_.running()) {
    Sequence& s = stream->sequence;
    if (s.prefix.donor == 0) continue;
    const LiveStream* donor = lists_.find(s.prefix.donor);
    if (donor && asks_store(donor->sequence)) continue;
    const int64_t ready = donor ? donor->sequence.shareable() : 0;
    if (donor && donor->sequence.phase == StreamPhase::running && ready < s.prefix.donor_tokens) {
      s.prefix.donor_stalled = ready > s.prefix.donor_computed ? 0 : s.prefix.donor_stalled + 1;
      s.prefix.donor_computed = ready;
      if (s.prefix.donor_stalled <= kPatience) continue;
    }
    end_wait(*stream, s.prefix.donor_stalled <= kPatience);
  }
}

void PrefixService::stop_sharing(LiveStream& stream) {
  Sequence& s = stream.sequence;
  s.prefix.donor = 0;
  s.held_back = false;
  const auto waits_for_it = [&](const StreamPtr& other) { return other->sequence.prefix.donor == s.id; };
  if (std::ranges::any_of(lists_.running(), waits_for_it)) cache_.insert(stream);
}

void PrefixService::release(LiveStream& stream) {
  if (stream.sequence.phase == StreamPhase::running) cache_.insert(stream);
  ledger_.release(stream);
}

}  // namespace millrace
