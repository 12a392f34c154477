// The part of EngineCore that finds and leaves prompts' beginnings in the prefix index. What a running stream has
// computed is stored as soon as somebody can use it, and who is admitted while another stream computes the same
// beginning waits for that stream: many requests that arrive together with one long prefix compute it once.
//
//   running   a: [prefix........|rest]   computes
//             b: [prefix........|other]  holds its place and no blocks until a has the common full blocks, then finds
//             them
#include <algorithm>

#include "engine/beam_group.h"
#include "engine/engine_core.h"

namespace millrace {
namespace {

constexpr int64_t kPatience = 4;  // steps that a stream may stand still while others wait for it

int64_t common_tokens(const Sequence& a, const Sequence& b) {
  const auto most = std::min(a.tokens.size(), b.tokens.size());
  return std::mismatch(a.tokens.begin(), a.tokens.begin() + static_cast<ptrdiff_t>(most), b.tokens.begin()).first -
         a.tokens.begin();
}

}  // namespace

// What the stream has computed, into the index; its blocks stay its own too.
void EngineCore::store_prefix(const LiveStream& stream) {
  const Sequence& s = stream.sequence;
  if (!s.prefix.caches || s.computed == 0) return;
  prefix_->insert(std::span(s.tokens).first(static_cast<size_t>(s.computed)), s.kv.blocks, s.prefix.scope,
                  s.request.keep_seconds, stream.importance);
}

void EngineCore::find_prefix(LiveStream& stream) {
  Sequence& s = stream.sequence;
  if (!s.prefix.caches) return;
  // At least one token is computed: its logits choose the next one.
  const auto shared = prefix_->match(std::span(s.tokens).first(static_cast<size_t>(s.size() - 1)), s.prefix.scope);
  s.kv.blocks.assign(shared.begin(), shared.end());
  for (BlockId block : s.kv.blocks) hold(block);
  s.kv.shared_blocks = static_cast<int64_t>(s.kv.blocks.size());
  s.computed = s.kv.shared_blocks * limits_.block_tokens;
  // Whose own blocks those were. The index may have a later block of a stream and an earlier one of another.
  for (const auto* list : {&running_, &leaving_}) {
    for (const StreamPtr& other : *list) {
      Sequence& o = other->sequence;
      int64_t i = std::min(std::ssize(o.kv.blocks), std::ssize(s.kv.blocks));
      while (i > o.kv.shared_blocks &&
             o.kv.blocks[static_cast<size_t>(i - 1)] != s.kv.blocks[static_cast<size_t>(i - 1)])
        --i;
      o.kv.shared_blocks = std::max(o.kv.shared_blocks, i);
    }
  }
  load_stored(stream);
}

// On admission: false when no other running stream has more of this one's beginning than the index. What it has
// computed already is stored and found; for what it is computing this one waits.
bool EngineCore::wait_for_prefix(LiveStream& stream) {
  Sequence& s = stream.sequence;
  if (!s.prefix.caches || s.size() <= limits_.block_tokens) return false;
  int64_t known = -1;
  LiveStream* donor = nullptr;
  for (const StreamPtr& other : running_) {
    const Sequence& o = other->sequence;
    if (other.get() == &stream || o.phase != StreamPhase::running || o.held_back || !o.prefix.caches ||
        o.prefix.scope != s.prefix.scope)
      continue;
    const int64_t common = std::min(common_tokens(s, o), s.size() - 1) / limits_.block_tokens * limits_.block_tokens;
    if (common == 0) continue;
    if (known < 0)
      known = prefix_->known_blocks(std::span(s.tokens).first(static_cast<size_t>(s.size() - 1)), s.prefix.scope) *
              limits_.block_tokens;
    if (common <= known) continue;
    known = common;
    donor = other.get();
  }
  if (!donor) return false;
  s.prefix.donor = donor->sequence.id;
  s.prefix.donor_tokens = known;
  s.prefix.donor_computed = donor->sequence.computed;
  s.prefix.donor_stalled = 0;
  s.held_back = true;
  if (donor->sequence.computed >= known) end_wait(stream, true);
  return true;
}

// Finds what the other stream has computed by now, and goes on alone, or `again` waits for one that has more.
void EngineCore::end_wait(LiveStream& stream, bool again) {
  Sequence& s = stream.sequence;
  const LiveStream* donor = find(s.prefix.donor);
  if (donor && (donor->sequence.phase == StreamPhase::running || donor->sequence.phase == StreamPhase::swapping_out))
    store_prefix(*donor);
  s.prefix.donor = 0;
  s.held_back = false;
  if (again && wait_for_prefix(stream)) return;
  find_prefix(stream);
  if (s.progress.preemptions == 0) s.prefix.cached = s.computed;
}

void EngineCore::end_waits() {
  for (const StreamPtr& stream : running_) {
    Sequence& s = stream->sequence;
    if (s.prefix.donor == 0) continue;
    const LiveStream* donor = find(s.prefix.donor);
    if (donor && donor->sequence.phase == StreamPhase::running && donor->sequence.computed < s.prefix.donor_tokens) {
      s.prefix.donor_stalled = donor->sequence.computed > s.prefix.donor_computed ? 0 : s.prefix.donor_stalled + 1;
      s.prefix.donor_computed = donor->sequence.computed;
      if (s.prefix.donor_stalled <= kPatience) continue;
    }
    end_wait(*stream, s.prefix.donor_stalled <= kPatience);
  }
}

}  // namespace millrace
