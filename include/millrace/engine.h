// Engine: runs many concurrent requests on one model. submit() and cancel() may be called from any thread; the engine's
// own thread does the work.
//
//   auto model = LanguageModel::load("model.gguf");
//   auto engine = Engine::create(*model);
//   auto stream = (*engine)->submit({.prompt = *(*model)->encode("Once upon a time")});
//   while (auto event = (*stream)->next()) fputs(event->text.c_str(), stdout);
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/age_histogram.h"
#include "millrace/constraint.h"
#include "millrace/events.h"
#include "millrace/model.h"
#include "millrace/options.h"
#include "millrace/request.h"
#include "millrace/snapshot.h"

namespace millrace {

// The events of one request. Destroying it cancels the request.
class Stream {
 public:
  ~Stream();
  RequestId id() const;

  // Waits for the next event; nullopt after the event with `last`.
  std::optional<TokenEvent> next();
  // Variant with a time limit; `timed_out` distinguishes a timeout from the end.
  std::optional<TokenEvent> next(std::chrono::milliseconds limit, bool* timed_out);

  void cancel();

 private:
  friend class Engine;
  struct State;
  explicit Stream(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

class QueuePlace;  // Engine::take_place()

// Statistics of the prefix store, EngineOptions::kv_store or kv_ssd.
struct KvStoreStats {
  bool open = false;
  bool connected = false;       // a store on another machine can be reached now
  bool io_uring = false;        // false: pread and pwrite
  bool direct = false;          // bypasses the page cache
  int64_t capacity_blocks = 0;  // 0: not limited by this program
  int64_t blocks = 0;           // currently stored, as far as this engine knows
  int64_t unread_slots = 0;     // slots whose contents have not been read yet since startup
  int64_t hit_tokens = 0;       // loaded instead of computed
  int64_t passed_tokens = 0;    // stored, but slower to load than to compute
  int64_t failed_tokens = 0;    // failed to load and were computed
  int64_t left_out_tokens = 0;  // stored, but left out of their streams' attention
  int64_t looking_up = 0;       // streams that wait for the store to say what it has
  int64_t late_lookups = 0;     // without an answer by the deadline
  int64_t late_loads = 0;       // incomplete at the deadline
  int64_t read_bytes = 0, written_bytes = 0;
  int64_t dropped_blocks = 0;  // not stored: too many writes in progress, or a write failed
  int64_t corrupt_blocks = 0;  // corrupt blocks found
};

// Memory by account: "weights", "KV", "activations" ...
struct MemoryUse {
  std::string name;
  int64_t bytes = 0;  // currently in use
  int64_t peak = 0;
};

// Statistics of the prefix cache since the engine started.
struct PrefixCacheStats {
  int64_t queries = 0;       // lookups, one per admission
  int64_t query_tokens = 0;  // tokens looked up
  int64_t hit_tokens = 0;    // tokens of the looked-up prompts that were found
  int64_t stored_blocks = 0;
  int64_t erased_blocks = 0;
  AgeHistogram lifetime;   // time since evicted blocks were stored
  AgeHistogram idle;       // time since the last use of evicted blocks
  AgeHistogram reuse_gap;  // time between two uses of a block
};

// Histogram of the prompt and answer tokens computed per step: bucket i counts steps of (2^(i-1), 2^i] tokens, the last
// bucket all larger ones.
struct StepTokens {
  static constexpr int kBuckets = 18;
  std::array<int64_t, kBuckets> buckets{};
  int64_t tokens = 0;
  void add(int64_t count) {
    const int bucket = count > 1 ? std::bit_width(static_cast<uint64_t>(count - 1)) : 0;
    ++buckets[static_cast<size_t>(std::min(bucket, kBuckets - 1))];
    tokens += count;
  }
};

// How `draft_length` auto has decided in the steps that had drafts. All counts are 0 where it is fixed.
struct DraftDecisions {
  int64_t chosen = 0;    // steps that verified drafts because they were expected to pay
  int64_t trials = 0;    // steps that verified a draft that was not expected to pay, to measure it
  int64_t declined = 0;  // steps that verified none
  // The latest estimate for the best number of drafted tokens, as multiples of a step without drafts.
  double yield = 1;  // tokens of the step
  double time = 1;   // duration of the step
  double gain() const { return yield / time; }
};

// Copies of recurrent states in the prefix cache.
struct StateCacheStats {
  int64_t slots = 0;       // copies that fit; 0: the model has no recurrent layers, or no prefix cache
  int64_t slot_bytes = 0;  // bytes of one copy
  int64_t held = 0;        // copies now
  int64_t stored = 0;      // copies ever stored
  int64_t replaced = 0;    // dropped because their stream stored a later one
  int64_t evicted = 0;     // dropped for another copy, or with the block before them
  int64_t hits = 0;        // prompts that continued from a copy
};

struct EngineStats {
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t waiting_for_masks = 0;  // running streams that sat out the latest step for their next mask
  int64_t kv_blocks = 0;
  int64_t kv_tables = 1;         // block tables of a stream that share them: its layers', where these have budgets
  int64_t kv_blocks_free = 0;    // on the free list
  int64_t kv_blocks_cached = 0;  // held by the prefix index, alone or shared with streams
  int64_t kv_bytes = 0;          // with recurrent states or KV tails
  int64_t states = 0;            // slots of recurrent states or KV tails; 0: there are neither
  int64_t states_free = 0;       // not held by streams
  StateCacheStats state_cache;
  int64_t scratch_bytes = 0;
  int64_t steps = 0;
  StepTokens step_tokens;
  int64_t prompt_tokens = 0;  // computed
  int64_t cached_tokens = 0;  // found in the prefix index instead
  int64_t generated_tokens = 0;
  int64_t drafted_tokens = 0;   // that ran
  int64_t accepted_tokens = 0;  // drafted tokens that saved a step
  int64_t drafts = 0;           // drafts that could have run, one a stream and step
  double draft_seconds = 0;     // spent on making them
  double draft_length = 0;      // drafted tokens that run of a draft, of late
  double draft_acceptance = 0;  // estimated share of first drafted tokens that are kept at present; 0: no drafter
  DraftDecisions draft_decisions;
  // Steps of streams whose draft reached position i, and those of them that kept it.
  std::array<int64_t, kDraftPositions> drafted_at{}, accepted_at{};
  int64_t preemptions = 0;
  int64_t recomputed_tokens = 0;  // discarded by preemptions, to be computed again
  int64_t livelocks = 0;  // times streams stopped making progress and were run to completion in order of arrival
  int64_t swapped_out_tokens = 0;  // swapped out to host memory by preemptions
  int64_t swapped_in_tokens = 0;
  int64_t evicted_tokens = 0;  // dropped from running streams by their evictors
  int64_t attention_rows = 0;  // KV format progressive: softmaxes of attention, one a head, token and layer ...
  int64_t flat_rows = 0;       // ... of those, the flat ones, which read both parts of keys and values
  PrefixCacheStats prefix;
  KvStoreStats store;
  int64_t memory_budget = 0;      // LoadOptions::memory
  std::vector<MemoryUse> memory;  // memory of the model and all its engines
};

struct AdapterInfo {
  std::string name;
  std::string path;
  int64_t rank = 0;      // largest rank
  int64_t matrices = 0;  // number of adapted matrices
  int64_t bytes = 0;     // in memory
};

// Says whether the engine's thread makes progress.
struct EngineLiveness {
  bool stopped = false;     // the thread has ended; no requests are accepted
  double step_seconds = 0;  // since the current step began; 0 between steps
};

class Engine {
 public:
  // Errors: user (an option), resource (memory).
  static Result<std::unique_ptr<Engine>> create(std::shared_ptr<const LanguageModel> model,
                                                const EngineOptions& options = {});
  ~Engine();  // cancels all requests

  // Errors: user (an empty or too long prompt, a token out of range, a sampling option), resource (queue full), and the
  // errors of compile(), which is called for a constraint that is not compiled yet.
  Result<std::unique_ptr<Stream>> submit(Request request);

  // Variant that passes every event to `sink` on the engine's thread. `sink` must move the event out and return
  // quickly. The first event may arrive before submit() returns. The request runs until its last event or cancel().
  using EventSink = std::function<void(TokenEvent&&)>;
  Result<RequestId> submit(Request request, EventSink sink, std::shared_ptr<QueuePlace> place = nullptr);
  void cancel(RequestId id);

  // Reserves a place in the queue for work that submits several requests one after the other, of up to `tokens` tokens
  // each. The work is then refused at once and not halfway. A request submitted with the place occupies it until its
  // last event, and is not refused for the number or memory of open requests. While the place is occupied, further
  // requests submitted with it are counted as if they had no place. The place is released with its last copy, which may
  // outlive the engine. Errors: resource (queue full).
  Result<std::shared_ptr<QueuePlace>> take_place(int64_t tokens);
  // From the next step on the request has this priority, if it is higher than its own.
  void raise(RequestId id, int64_t priority);

  // The errors of submit() that do not depend on load: neither a full queue nor errors of compile().
  Result<void> check(const Request& request) const;

  // Compiles a constraint on the calling thread, with bounded memory and time. A caller that must not block in submit()
  // compiles on another thread and keeps the result until submit() has returned. Errors: user (syntax, unsatisfiable),
  // unsupported (a construct, or too large), resource (no memory now), cancelled.
  Result<CompiledConstraint> compile(const Constraint& constraint, const CompileOrder& order = {}) const;
  // The result of compile() if it is already known.
  std::optional<Result<CompiledConstraint>> compiled(const Constraint& constraint) const;

  // LoRA adapters for requests that name them. Loading an adapter under an existing name replaces it; running streams
  // keep the old one. The file is read on the calling thread. Errors: corrupt, unsupported, user, resource.
  Result<void> load_adapter(const std::string& name, const std::string& path);
  bool unload_adapter(const std::string& name);  // false: no such adapter
  std::vector<AdapterInfo> adapters() const;

  EngineStats stats() const;
  EngineLiveness liveness() const;

  // Requests a snapshot. The engine's thread passes it to `sink` between two steps; `sink` must move it out and return
  // quickly. Steps are recorded from the first snapshot on, as long as snapshots are requested. True: `sink` will be
  // called exactly once; if the engine stops first, with an otherwise empty snapshot whose `stopped` is set. False:
  // `sink` is never called, because the engine has stopped or kMaxSnapshots are already pending.
  static constexpr size_t kMaxSnapshots = 8;
  using SnapshotSink = std::function<void(EngineSnapshot&&)>;
  [[nodiscard]] bool snapshot(SnapshotSink sink);
  int64_t context() const;
  // Tokens of the longest prompt that can be kept whole: context(), or fewer where the KV cache holds fewer.
  int64_t longest_kept() const;
  int64_t most_requests() const;  // open at once: running and in the queue

  // save_prefix() saves the keys and values of the request's prompt to a file, as far as the prefix cache has them in
  // full blocks. load_prefix() loads such a file into the prefix cache. A loaded file serves requests like this one: of
  // its tenant, prefix group and adapters; the prompt is read from the file. Both return the number of tokens. They
  // wait for the engine's thread, so an EventSink must not call them. Errors: user (nothing cached; a file of another
  // model, machine or KV format), corrupt, unsupported, resource.
  Result<int64_t> save_prefix(const Request& request, const std::string& path);
  Result<int64_t> load_prefix(const Request& request, const std::string& path);

 private:
  Engine();
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace millrace
