// StateCopies: takes copies of the streams' recurrent states for the prefix cache, at multiples of its stride. A state
// can be copied only between two steps, so chunks end where a copy is wanted (KvState::state_at). A stream takes copies
//
//   - at the last multiple of its prompt, so that the same prompt or a longer one continues from there
//   - where its prompt leaves what the prefix cache has, because other prompts begin with those tokens
//   - where a stream that waits for it needs one (PrefixService)
//   - at every multiple of its answer; the policy says which of these stay
//   - before the last token of its prompt, if further answers begin there; this copy is not of the prefix cache
//   - where the policy wants further ones (kv/state_evictor.h)
//
// Does nothing for models without recurrent layers. Not thread-safe: owned by the engine's thread.
#pragma once

#include "engine/live_stream.h"
#include "engine/prefix_cache.h"

namespace millrace {

class StateCopies {
 public:
  explicit StateCopies(KvPool& pool, PrefixCache& cache) : pool_(pool), cache_(cache) {}

  // When the stream is about to compute its tokens, some of which may have been found: sets where it takes copies.
  void begin(LiveStream& stream) const;
  // Sets where the stream takes its next copy, after it has loaded tokens and the state behind them.
  void loaded(LiveStream& stream) const;
  // Another stream needs a copy behind the first `tokens` tokens, more than `donor` has computed.
  void want(LiveStream& donor, int64_t tokens) const;
  // Called between two steps. Takes a copy if the stream has computed exactly KvState::state_at tokens.
  void take(LiveStream& stream);
  // A further answer of the request has begun with `first`'s state before the prompt's last token.
  void forked(LiveStream& first, LiveStream& answer) const;

 private:
  void set_next(LiveStream& stream) const;
  StatePlace place_of(const LiveStream& stream, int64_t tokens) const;
  void store(LiveStream& stream);

  KvPool& pool_;
  PrefixCache& cache_;
};

}  // namespace millrace
