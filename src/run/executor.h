// Executor: runs a planned step. The engine's loop (engine/engine_core.h) decides which tokens of which streams run; an
// executor computes them and samples the next tokens: with a model on this machine (cpu_executor.h), or by a cost model
// on a virtual clock (simulated_executor.h). Not thread-safe, except check(), compile() and compiled().
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <span>

#include "base/memory_accounts.h"
#include "flow/step_plan.h"
#include "kv/pool.h"
#include "kv/tiers/prefix_store.h"
#include "millrace/constraint.h"
#include "millrace/options.h"
#include "run/live_stream.h"
#include "schedule/cost_model.h"

namespace millrace {

class Acceptance;
class AdapterRegistry;
class DraftModel;

struct ExecutorLimits {
  int64_t context = 0;  // tokens of the longest stream
  int64_t tokens = 0;   // in one step
  int64_t outputs = 0;  // rows of logits in one step: of sampled chunks and their drafted tokens
  int64_t scratch_bytes = 0;
  int64_t request_bytes = 0;   // of all open requests together (request_memory()); 0: no limit
  int64_t drafts = 0;          // tokens of the longest draft; 0: no drafter
  int64_t vocab = 0;           // tokens of the model; 0: unknown
  bool prompts_apart = false;  // tokens of prompts are computed in another way than those of answers
  int64_t gate_dims = 0;       // floats by which gates judge a stored token in a layer (models/token_gates.h)
};

// One chunk of a step and its stream, whose blocks cover the chunk.
struct StepWork {
  LiveStream* stream = nullptr;
  PlannedChunk chunk;
  bool lost = false;  // ran over keys that turned out damaged: does not count
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual const ExecutorLimits& limits() const = 0;
  virtual KvPool& kv() = 0;

  // Memory for the keys and values of preempted streams, `tokens` of them. Errors: resource.
  virtual Result<std::unique_ptr<KvTier>> make_tier(int64_t tokens) = 0;
  // The tier that the options name, for preempted streams. Errors: user, resource, unsupported.
  virtual Result<std::unique_ptr<KvTier>> make_swap(const EngineOptions& options) {
    if (!options.kv_tier.empty()) return Error::unsupported("KV tier: not with this executor");
    return make_tier(options.swap_tokens);
  }
  // The store that the options name, for blocks that leave the prefix index. Errors: user, resource, unsupported.
  virtual Result<std::unique_ptr<PrefixStore>> make_store(const EngineOptions&) {
    return Error::unsupported("KV store: not with this executor");
  }
  // Text for everything that keys and values depend on beside tokens and adapters; equal for engines that may exchange
  // them. Between steps; takes a block of the pool for a moment. Errors: resource, unsupported.
  virtual Result<std::string> kv_identity() {
    return Error::unsupported("KV file: this executor has no keys and values");
  }
  // From now on every forward() calls `ready(layer)` before the layer's attention, on its own thread. False: this
  // executor cannot, and streams must have all their blocks before they run.
  virtual bool before_attention(std::function<void(int64_t)>) { return false; }
  // The second model of the options' drafter; null: none. Lives as long as the executor.
  virtual DraftModel* draft_model() { return nullptr; }
  // Predicts the duration of steps, where that is known beforehand; null: the engine learns a model.
  virtual CostModel* cost() { return nullptr; }

  // Refuses requests that this executor cannot serve; does not look into the constraint. Any thread. Errors: user,
  // unsupported.
  virtual Result<void> check(const Request& request) const = 0;
  // Compiles a constraint, on the calling thread; any thread. begin() finds the result while a copy of it exists.
  // compiled() returns a result that is known already, and never compiles. Errors: user, unsupported, resource,
  // cancelled.
  virtual Result<CompiledConstraint> compile(const Constraint& constraint, const CompileOrder&) const {
    if (constraint.kind == Constraint::Kind::none) return CompiledConstraint();
    return Error::unsupported("constraint: is not supported by this executor");
  }
  virtual std::optional<Result<CompiledConstraint>> compiled(const Constraint&) const { return std::nullopt; }
  // Refuses evictors that this executor cannot run. Errors: unsupported.
  virtual Result<void> check_evictor(const EvictionRule& rule) const {
    if (rule.evictor->gated())
      return Error::unsupported("evictor: this executor computes no layers whose gates could choose");
    if (!rule.evictor->needs_sums()) return {};
    return Error::unsupported("evictor: this executor computes no attention that it could observe");
  }
  // Refuses requests with parts of a context. `weighs`: what follows these weighs their keys anew (ContextPlan::sees).
  // Errors: unsupported.
  virtual Result<void> check_context(bool /*weighs*/) const {
    return Error::unsupported("context: this executor computes no keys that it could move");
  }
  // Refuses documents that are to be read by an encoder. Any thread. Errors: user, unsupported, resource.
  virtual Result<void> check_encoded(const DocumentTokens& /*documents*/) const {
    return Error::unsupported("context cepe: this executor has no encoder");
  }
  // Puts trained rows in place of the links of a request's documents. Any thread. Errors: user.
  virtual Result<void> put_links(const LinkRowsChoice& /*choice*/, Request& /*request*/) const {
    return Error::unsupported("context kvlink: link_embeddings: this executor computes no keys and values");
  }
  // Before the stream runs: holds what its encoded documents have become, and encodes what is missing, about `budget`
  // tokens at most, which it lessens. False: not yet; the stream cannot run in this step.
  virtual bool hold_documents(LiveStream& /*stream*/, int64_t& /*budget*/) { return true; }
  // Whether a plan's parts can be computed here. Any thread. Errors: unsupported, resource.
  virtual Result<void> check_parts(const ContextPlan& /*plan*/) const { return {}; }
  // Whether the parts of all contexts are placed (ContextPlan::placed).
  virtual bool places_parts() const { return false; }
  // Of such parts. Holds the part's rows for the stream, and computes those that are
  // missing, about `budget` tokens at most, which it lessens. False: not all are there yet.
  virtual bool hold_part(LiveStream& /*stream*/, const ContextPart& /*part*/, int64_t& /*budget*/) { return false; }
  // Then stores the next `count` of them as the stream's, whose blocks cover them. Returns how many were not computed
  // for this stream.
  virtual int64_t put_part(LiveStream& /*stream*/, const ContextPart& /*part*/, int64_t /*count*/) { return 0; }
  // Moves the keys in `count` slots from `slot` on to positions higher by `positions`.
  virtual void move_keys(std::span<const BlockId> /*blocks*/, int64_t /*slot*/, int64_t /*count*/,
                         int64_t /*positions*/) {}
  // Of a pool whose first group has a codec: what the stream keeps of its slots moves to the first ones.
  virtual void compact_encoded(const LiveStream& /*stream*/) {}
  // After the first `end` slots of a stream have got other tokens or keys, from slot `begin` on.
  virtual void keys_changed(std::span<const BlockId> /*blocks*/, int64_t /*begin*/, int64_t /*end*/) {}
  // Computes tokens of the stream's stale parts again (ContextPart::refreshes()). Not between forward() and choose().
  virtual void refresh(const LiveStream& /*stream*/) {}
  // Prepares a new stream for choose(); stream.sequence.request is set. Errors: as check().
  virtual Result<void> begin(LiveStream& stream) const = 0;

  // From now on, forward() adds the attention mass of prompt blocks to LiveStream::importance, if it can.
  virtual void observe_attention() {}
  // Computes the chunks and stores their keys and values.
  virtual void forward(std::span<const StepWork> work) = 0;
  // After forward(): an error with which every request ends, because the model's weights turned out damaged. Any
  // thread.
  virtual Result<void> failure() const { return {}; }
  // After forward() and before choose(): may sample all of the plan's rows now, on several threads. choose() is then
  // asked for the same rows: of each stream in order, as long as the acceptance keeps the drafted tokens.
  virtual void choose_ahead(std::span<const StepWork>, const Acceptance&) {}
  // False: too much work on what the stream's next token may be is left for this step, so that it does not choose from
  // that row, behind a drafted token.
  virtual bool may_choose(LiveStream&, int64_t /*row*/) const { return true; }
  // After forward(): samples the next token of a stream from the `row`-th output of the plan's chunks; token and text
  // go into `event`. True: the stream ends with it. Rows after drafted tokens are used only while the draft is right,
  // in order, each after the token before it has joined the stream.
  virtual Result<bool> choose(LiveStream& stream, int64_t row, TokenEvent& event) = 0;
  // After forward(), instead of choose(): the `count` likeliest tokens of that row, best first, ties by id.
  virtual void likeliest(int64_t /*row*/, int64_t /*count*/, std::vector<TokenLogprob>& out) { out.clear(); }
  // After forward(): the likeliest token of a row that is not chosen from; ties by id.
  virtual TokenId best_token(int64_t /*row*/) { return 0; }
  // After forward(): the out.size() likeliest tokens of a row, best first; ties by id. At most the vocabulary.
  virtual void best_tokens(int64_t /*row*/, std::span<TokenId> out) { std::ranges::fill(out, 0); }
  virtual std::vector<TokenId> end_tokens() const { return {}; }
  // Adds the text of event.token, which was chosen elsewhere.
  virtual void write(LiveStream& /*stream*/, TokenEvent& /*event*/) {}
  // When a stream ends: adds text that was held back.
  virtual void flush(LiveStream& stream, TokenEvent& event) = 0;

  // LoRA adapters; null: not supported. Thread-safe.
  virtual AdapterRegistry* adapters() const { return nullptr; }

  // The accounts that count its memory; null: none.
  virtual const MemoryAccounts* accounts() const { return nullptr; }
  // That blocks beside those of kv() have as many references as holders. Errors: internal.
  virtual Result<void> check_blocks() const { return {}; }

  // Logits of the last step's outputs, in plan order; null if there are none.
  virtual const float* logits() const { return nullptr; }
};

}  // namespace millrace
