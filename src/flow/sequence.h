// Sequence: the mutable state of one stream, owned by the engine thread. The functions that change it (planner, batch
// builder, commit) are in schedule/, run/ and engine/.
//
//   waiting -> running -> (finished)        swapping_out, then swapped: the stream's blocks are in a tier
//      ^          |                         loading: the stream has blocks again; their bytes are being copied
//      +----------+  preempted: keeps its tokens, releases its blocks
//                                           looking_up: asks which of its blocks the prefix store has
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "flow/state_mark.h"
#include "millrace/events.h"
#include "millrace/request.h"

namespace millrace {

// Each answer of a request is a stream; the first one has the request's id.
inline constexpr int kAnswerShift = 48;
inline RequestId answer_stream(RequestId request, int64_t answer) {
  return request | static_cast<RequestId>(answer) << kAnswerShift;
}
inline RequestId request_of(RequestId stream) { return stream & ((RequestId{1} << kAnswerShift) - 1); }
inline int64_t answer_of(RequestId stream) { return static_cast<int64_t>(stream >> kAnswerShift); }

enum class StreamPhase : uint8_t { waiting, running, swapping_out, swapped, loading, looking_up };

// The stream's blocks in one group of layers of the pool (kv/pool.h), for every group after the first.
struct WindowBlocks {
  std::vector<int32_t> blocks;
  int64_t dead = 0;         // with a window: leading blocks released because no later token sees them; entries are 0
  int64_t left_out = 0;     // if KvState::by_layer: KvState::left_out of this layer
  int64_t most_stored = 0;  // if KvState::by_layer: KvState::most_stored of this layer
};

// The stream's share of the KV cache.
struct KvState {
  std::vector<int32_t> blocks;        // block table; covers at least `stored()` tokens
  int64_t dead_blocks = 0;            // if every layer has a window: leading blocks that were released
  std::vector<WindowBlocks> windows;  // blocks of the pool's groups after the first
  bool by_layer = false;              // every layer is a group; blocks of `windows` then count like those of `blocks`
  int32_t state = -1;                 // slot of recurrent states; -1: the model has none
  std::vector<StateMark> marks;       // slots that receive the state behind tokens of the stream's next chunk
  int64_t reserved_blocks = 0;        // blocks promised at admission; not available for admitting other streams
  int64_t shared_blocks = 0;          // leading blocks that other streams may hold too
  int64_t left_out = 0;               // tokens before `computed` without blocks; attention excludes them
  // maximum of left_out after any load from the prefix store; reported in the request's timings
  int64_t most_left_out = 0;
  int64_t most_stored = 0;  // maximum of tokens that the evictor will let the stream store at once; 0: no evictor
  int64_t border = -1;      // number of computed tokens at which a part of the document context begins or ends, or at
                            // which the stream waits for its next documents; no chunk crosses it. -1: none
  int64_t evict_at = 0;     // number of computed tokens at which the evictor drops tokens; no chunk crosses it. 0: no
                            // evictor
  // number of computed tokens at which the prefix cache copies the recurrent state; no chunk crosses it. 0: none
  int64_t state_at = 0;

  int64_t held_blocks() const { return from(dead_blocks); }
  // Returns the number of blocks that this stream alone holds: those after the shared blocks.
  int64_t own_blocks() const { return from(dead_blocks > shared_blocks ? dead_blocks : shared_blocks); }
  // Returns the number of computed tokens that have no slot in the table of group `g`.
  int64_t left_out_of(int64_t g) const {
    return g == 0 ? left_out : by_layer ? windows[static_cast<size_t>(g - 1)].left_out : 0;
  }

 private:
  int64_t from(int64_t first) const {
    const auto size = static_cast<int64_t>(blocks.size());
    int64_t count = size > first ? size - first : 0;
    if (!by_layer) return count;
    for (const WindowBlocks& layer : windows) count += static_cast<int64_t>(layer.blocks.size());
    return count;
  }
};

// The stream's connection to the prefix index.
struct PrefixState {
  bool caches = false;         // the stream may look up and insert prefix blocks, in `scope`
  uint64_t scope = 0;          // only streams of the same scope share prefixes
  int64_t cached = 0;          // computed tokens that were found in the index
  RequestId donor = 0;         // running stream whose computation of the same prefix this stream waits for; 0: none
  int64_t donor_tokens = 0;    // tokens of the donor to wait for
  int64_t donor_computed = 0;  // the donor's computed tokens at the last check
  int64_t donor_stalled = 0;   // checks in a row without progress of the donor
};

// The stream's progress, and the work it lost to preemptions (schedule/preemption.h).
struct ProgressState {
  int64_t preemptions = 0;
  int64_t furthest = 0;    // maximum of computed tokens so far
  int64_t lost = 0;        // computed tokens lost to preemptions
  int64_t safe_until = 0;  // the planner does not preempt the stream while fewer tokens are computed
};

// Drafted tokens, which may follow a stream's last token: a chain, or a tree of alternatives. The first n tokens of a
// draft, for any n, are also a draft.
//
//   the cat | sat . and sat        tokens    sat .  and sat        The tree proposes "sat ." or "and sat".
//             '-- . '-- and        parents   -1  0  -1  2
struct Draft {
  std::vector<TokenId> tokens;
  // For each token of a tree, the index of the drafted token before it; -1: the token follows the stream's last token.
  // Empty: the draft is a chain.
  std::vector<int32_t> parents;
  int64_t probes = 0;  // number of tokens at the draft's end that run only to inform the drafter and are never kept

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  int64_t parent(int64_t index) const { return parents.empty() ? index - 1 : parents[static_cast<size_t>(index)]; }
  bool is_chain(int64_t count) const {  // true: the first `count` tokens are a chain
    for (int64_t i = 0; i < count; ++i)
      if (parent(i) != i - 1) return false;
    return true;
  }
  // Returns the number of the first `count` tokens that may be kept: all but probes.
  int64_t candidates(int64_t count) const { return count < size() - probes ? count : size() - probes; }
  void clear() {
    tokens.clear();
    parents.clear();
    probes = 0;
  }
};

// State that a drafter keeps for one stream.
struct DraftMemory {
  virtual ~DraftMemory() = default;
};

// A stream's draft for the next step (speculate/drafter.h), and counts over all steps so far. The answer has
// `passes` + `accepted` tokens.
struct DraftState : Draft {
  static constexpr int64_t kAll = INT64_MAX;

  std::shared_ptr<DraftMemory> memory;  // null: none
  int64_t stored = kAll;                // leading tokens whose keys and values the draft model has; kAll: every token
  int64_t passes = 0;                   // steps that sampled a token of the stream
  int64_t drafted = 0;                  // drafted tokens that ran, without probes
  int64_t accepted = 0;                 // drafted tokens that saved a step
  // For each position i of a draft: steps that ran a drafted token there, and steps that kept it.
  std::array<int32_t, kDraftPositions> drafted_at{}, accepted_at{};
  int64_t predicted = 0;   // index in Request::prediction of the token that is expected next
  int64_t aligned = 0;     // number of generated tokens that were compared with Request::prediction
  bool predicting = true;  // the last compared token was equal to the predicted token
};

// Times in nanoseconds of the engine's clock; 0: has not happened, or is not set.
struct StreamTimes {
  int64_t submitted = 0;
  int64_t admitted = 0;  // first admission
  int64_t first_token = 0;
  int64_t deadline = 0;
  int64_t time_limit = 0;
};

struct Sequence {
  RequestId id = 0;      // id of the stream: answer_stream(request, answer)
  int64_t arrival = 0;   // order of arrival among an engine's streams
  RequestId parent = 0;  // stream of the request's first answer, which shares its prompt blocks; 0: this is the first
  Request request;
  std::vector<TokenId> tokens;  // prompt, then generated tokens
  int64_t prompt_tokens = 0;
  int64_t computed = 0;          // tokens whose keys and values are stored
  int64_t max_total = 0;         // limit of prompt and generated tokens together
  int64_t width = 1;             // streams admitted together that grow equally long (the beams of a search)
  bool non_preemptible = false;  // all blocks that the stream may need are promised to it; it is never preempted
  StreamPhase phase = StreamPhase::waiting;
  double depth = 1;           // fraction of the model's layers that the stream's tokens run
  bool prompt_apart = false;  // no chunk crosses the end of the prompt, and only blocks of the prompt are shared
  bool held_back = false;     // if waiting, for the parent's prompt; if running, for the donor's prefix or a token mask
  KvState kv;
  PrefixState prefix;
  ProgressState progress;
  DraftState draft;
  StreamTimes times;

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  int64_t stored() const { return computed - kv.left_out; }
  // Returns the number of computed tokens whose blocks other streams may use: those that the draft model has stored,
  // too.
  int64_t shareable() const {
    const int64_t alike = prompt_apart && prompt_tokens < computed ? prompt_tokens : computed;
    return alike < draft.stored ? alike : draft.stored;
  }
  // Returns the number of tokens whose blocks the stream may take from other streams. The last token is excluded,
  // because it must be computed to sample the next token.
  int64_t adoptable() const { return prompt_apart && prompt_tokens < size() ? prompt_tokens : size() - 1; }
  // Returns the number of tokens to compute again if the stream loses its blocks, including tokens that the evictor has
  // dropped.
  int64_t to_recompute() const { return kv.evict_at > 0 ? computed : stored(); }
  // Returns the maximum number of tokens that the stream stores at once until `total` of its tokens are computed.
  int64_t kv_demand(int64_t total) const {
    const int64_t all = total - kv.left_out;
    return kv.most_stored > 0 && kv.most_stored < all ? kv.most_stored : all;
  }
  // Returns kv.left_out; if layers differ (KvState::by_layer), the average over the layers, rounded up.
  int64_t mean_left_out() const {
    if (!kv.by_layer) return kv.left_out;
    const auto layers = static_cast<int64_t>(kv.windows.size()) + 1;
    int64_t sum = kv.left_out + layers - 1;
    for (const WindowBlocks& table : kv.windows) sum += table.left_out;
    return sum / layers;
  }
  // Returns kv_demand() of one layer, for streams with KvState::by_layer.
  int64_t layer_demand(int64_t layer, int64_t total) const {
    if (layer == 0) return kv_demand(total);
    const WindowBlocks& table = kv.windows[static_cast<size_t>(layer - 1)];
    const int64_t all = total - table.left_out;
    return table.most_stored > 0 && table.most_stored < all ? table.most_stored : all;
  }
  int64_t generated() const { return size() - prompt_tokens; }
  int64_t remaining() const { return size() - computed; }  // tokens to run before the next token can be sampled
  // Returns token `index`. Indices from size() on refer to drafted tokens.
  TokenId token_at(int64_t index) const {
    return index < size() ? tokens[static_cast<size_t>(index)] : draft.tokens[static_cast<size_t>(index - size())];
  }
  bool decoding() const { return computed + 1 == size() && computed >= prompt_tokens; }
};

}  // namespace millrace
