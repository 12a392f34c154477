// Executor: what runs a planned step. The engine's loop (engine_core.cc) decides which tokens of which streams run and
// keeps the accounts; an executor computes them and chooses the next tokens: with a model on this machine
// (cpu_executor.h), or by a cost model on a virtual clock (simulated_executor.h). Not thread-safe, but for check().
#pragma once

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

class AdapterRegistry;

struct ExecutorLimits {
  int64_t context = 0;  // tokens of the longest stream
  int64_t tokens = 0;   // in one step
  int64_t outputs = 0;  // sampled chunks in one step
  int64_t scratch_bytes = 0;
  int64_t request_bytes = 0;  // of all open requests (request_memory()); 0: no limit
};

// One chunk of a step and whose it is. The stream's blocks cover the chunk.
struct StepWork {
  LiveStream* stream = nullptr;
  PlannedChunk chunk;
  bool lost = false;  // ran over keys that turned out damaged: as if it had not run
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual const ExecutorLimits& limits() const = 0;
  virtual KvPool& kv() = 0;

  // Memory for the keys and values of streams that have to give way, `tokens` of them. Errors: resource.
  virtual Result<std::unique_ptr<KvTier>> make_tier(int64_t tokens) = 0;
  // The file that options.kv_ssd names, for blocks that leave the prefix index. Errors: user, resource, unsupported.
  virtual Result<std::unique_ptr<PrefixStore>> make_store(const EngineOptions&) {
    return Error::unsupported("KV store: not with this executor");
  }
  // Has `ready(layer)` called in every forward() before the layer's attention, on the thread of that call. False: this
  // executor cannot, and streams must have all their blocks before they run.
  virtual bool before_attention(std::function<void(int64_t)>) { return false; }
  // What steps take, where that is known beforehand; null: the engine learns it.
  virtual CostModel* cost() { return nullptr; }

  // What cannot be asked of this executor, whatever the constraint says; any thread may call it. Errors: user,
  // unsupported.
  virtual Result<void> check(const Request& request) const = 0;
  // What the answer is held to, compiled on the calling thread, which any may be; begin() finds it as long as somebody
  // has it. compiled() never compiles: nothing where that would be needed. Errors: user, unsupported, resource,
  // cancelled.
  virtual Result<CompiledConstraint> compile(const Constraint& constraint, const CompileOrder&) const {
    if (constraint.kind == Constraint::Kind::none) return CompiledConstraint();
    return Error::unsupported("constraint: is not supported by this executor");
  }
  virtual std::optional<Result<CompiledConstraint>> compiled(const Constraint&) const { return std::nullopt; }
  // Gives a new stream what choose() will want of it; stream.sequence.request is filled. Errors as check().
  virtual Result<void> begin(LiveStream& stream) const = 0;

  // From now on, forward() observes which blocks the prompts look at, into LiveStream::importance, if it can.
  virtual void observe_attention() {}
  // Computes the chunks and stores their keys and values.
  virtual void forward(std::span<const StepWork> work) = 0;
  // After forward(): the next token of a stream whose chunk was the `row`-th sampled one, with its text, into `event`.
  // True when the stream ends with it.
  virtual Result<bool> choose(LiveStream& stream, int64_t row, TokenEvent& event) = 0;
  // After forward(), instead of choose(): the `count` likeliest tokens of that row, best first, ties by id.
  virtual void likeliest(int64_t /*row*/, int64_t /*count*/, std::vector<TokenLogprob>& out) { out.clear(); }
  virtual std::vector<TokenId> end_tokens() const { return {}; }
  // The text of event.token, which others chose, into `event`.
  virtual void write(LiveStream& /*stream*/, TokenEvent& /*event*/) {}
  // Text that was held back, when a stream ends.
  virtual void flush(LiveStream& stream, TokenEvent& event) = 0;

  // LoRA adapters; null: this executor has none. Its own lock guards it.
  virtual AdapterRegistry* adapters() const { return nullptr; }

  // Where its memory is counted; null: nowhere.
  virtual const MemoryAccounts* accounts() const { return nullptr; }

  // Logits of the last step's sampled chunks, in plan order; null where there are none.
  virtual const float* logits() const { return nullptr; }
};

}  // namespace millrace
