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

// The events of one request. Destroying the stream cancels the request.
class Stream {
 public:
  ~Stream();
  RequestId id() const;

  // Waits for the next event. Returns nullopt after the event with `last`.
  std::optional<TokenEvent> next();
  // Variant with a time limit. After nullopt, `timed_out` is true for a timeout and false for the end of the request.
  std::optional<TokenEvent> next(std::chrono::milliseconds limit, bool* timed_out);

  void cancel();

 private:
  friend class Engine;
  struct State;
  explicit Stream(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

class QueuePlace;  // see Engine::take_place()

// Statistics of the prefix store that EngineOptions::kv_store configures.
struct KvStoreStats {
  bool open = false;
  bool connected = false;       // a store on another machine can be reached now
  bool io_uring = false;        // false: pread and pwrite
  bool direct = false;          // bypasses the page cache
  int64_t capacity_blocks = 0;  // 0: not limited by this program
  int64_t blocks = 0;           // currently stored, as far as this engine knows
  int64_t unread_slots = 0;     // slots whose contents have not been read yet since startup
  int64_t hit_tokens = 0;       // tokens that were loaded instead of computed
  int64_t passed_tokens = 0;    // stored tokens that were computed because loading them is slower
  int64_t failed_tokens = 0;    // tokens that failed to load and were computed
  int64_t left_out_tokens = 0;  // stored tokens that were left out of their streams' attention
  int64_t looking_up = 0;       // streams that wait for the store to report which of their blocks it has
  int64_t late_lookups = 0;     // lookups without an answer by their deadline
  int64_t late_loads = 0;       // loads that were incomplete at their deadline
  int64_t read_bytes = 0, written_bytes = 0;
  int64_t dropped_blocks = 0;  // blocks that were not stored: too many writes in progress, or a failed write
  int64_t corrupt_blocks = 0;  // corrupt blocks found
};

// Memory of one account, such as "weights", "KV" or "activations".
struct MemoryUse {
  std::string name;
  int64_t bytes = 0;  // currently in use
  int64_t peak = 0;
};

// Statistics of the prefix cache since the engine started.
struct PrefixCacheStats {
  int64_t queries = 0;       // lookups, one per admission
  int64_t query_tokens = 0;  // tokens looked up
  int64_t hit_tokens = 0;    // looked-up tokens that were found
  int64_t stored_blocks = 0;
  int64_t erased_blocks = 0;
  AgeHistogram lifetime;   // time since evicted blocks were stored
  AgeHistogram idle;       // time since the last use of evicted blocks
  AgeHistogram reuse_gap;  // time between two uses of a block
};

// Histogram of the prompt and answer tokens computed per step. Bucket i counts steps of (2^(i-1), 2^i] tokens; the last
// bucket also counts all larger steps.
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

// Decisions of `draft_length` auto in steps for which drafts were available. All counts are 0 if it is fixed.
struct DraftDecisions {
  int64_t chosen = 0;    // steps that verified drafts because they were expected to make decoding faster
  int64_t trials = 0;    // steps that verified an unpromising draft in order to measure it
  int64_t declined = 0;  // steps that verified no draft
  // The latest estimates for a step with the best number of drafted tokens, relative to a step without drafts.
  double yield = 1;  // tokens of the step, as a multiple
  double time = 1;   // duration of the step, as a multiple
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

// Worker processes that hold keys and values and run attention (the kernel fastdecode); all 0 without them.
struct AttentionWorkerStats {
  int64_t workers = 0;
  int64_t starts = 0;          // number of workers that replaced one that had ended
  int64_t bytes = 0;           // bytes of keys and values in all workers together
  int64_t sent_bytes = 0;      // keys, values and queries to workers, with their frames
  int64_t received_bytes = 0;  // outputs of attention
  double wait_seconds = 0;     // that mini-batches have waited for workers
};

// Reads of weights from the disk by the model's weight source, for all engines of the model; see
// docs/larger-than-memory.md.
struct WeightReadStats {
  int64_t bytes_read = 0;       // without those of the start
  int64_t hits = 0;             // layers or experts that were in memory when a step needed them
  int64_t misses = 0;           // layers or experts that a step waited for
  double wait_seconds = 0;      // for those
  int64_t prefetched = 0;       // layers or experts that were read before a step needed them
  int64_t prefetched_used = 0;  // prefetched ones that a step used before they left memory
  int64_t failed = 0;           // reads that failed
  int64_t experts = 0;          // experts that steps ran, each once for all tokens of a step
  int64_t cold_experts = 0;     // ... that are packed in a cold format, of fewer bits than the file's
  int64_t kept_bytes = 0;       // bytes of weights that stay in memory; 0: the source does not count
  int64_t cache_bytes = 0;      // bytes of the memory that the others share
};

// Reads of keys and values by a KV tier `disk`; see docs/larger-than-memory.md.
struct KeyStreamStats {
  int64_t blocks = 0;           // blocks of the pool that have memory in one or two layers at a time; 0: no such tier
  int64_t resident_blocks = 0;  // blocks that have memory in every layer
  bool io_uring = false;
  bool direct = false;             // bypasses the page cache
  int64_t read_bytes = 0;          // read from the file
  int64_t written_bytes = 0;       // written to the file
  int64_t layer_blocks = 0;        // blocks that layers needed, one for each layer and step
  int64_t layer_blocks_read = 0;   // blocks of layers that were read from the file
  int64_t layer_blocks_ahead = 0;  // those of layer_blocks_read whose reads began before their layer did
  double wait_seconds = 0;         // time that steps waited for reads
  int64_t failed_blocks = 0;       // blocks that could not be read, or were damaged
};

struct EngineStats {
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t waiting_for_masks = 0;  // running streams that skipped the latest step because their mask was not ready
  int64_t kv_blocks = 0;
  int64_t kv_tables = 1;         // block tables of one stream; more than 1 if each layer has its own token budget
  int64_t kv_blocks_free = 0;    // on the free list
  int64_t kv_blocks_cached = 0;  // held by the prefix index, alone or shared with streams
  int64_t kv_bytes = 0;          // with recurrent states or KV tails
  int64_t states = 0;            // slots for recurrent states or KV tails; 0: the model needs neither
  int64_t states_free = 0;       // slots that no stream holds
  StateCacheStats state_cache;
  int64_t scratch_bytes = 0;
  int64_t steps = 0;
  StepTokens step_tokens;
  int64_t prompt_tokens = 0;  // prompt tokens that were computed
  int64_t cached_tokens = 0;  // prompt tokens that were found in the prefix index instead
  int64_t generated_tokens = 0;
  int64_t drafted_tokens = 0;   // drafted tokens that steps verified
  int64_t accepted_tokens = 0;  // drafted tokens that saved a step
  int64_t drafts = 0;           // proposed drafts, at most one per stream and step; not all are verified
  double draft_seconds = 0;     // time spent on creating drafts
  double draft_length = 0;      // verified tokens per draft, moving average
  double draft_acceptance = 0;  // current estimate of the share of first drafted tokens that are kept; 0: no drafter
  DraftDecisions draft_decisions;
  // At index i: drafts whose token at position i was verified, and drafts whose token at position i was kept.
  std::array<int64_t, kDraftPositions> drafted_at{}, accepted_at{};
  int64_t preemptions = 0;
  int64_t recomputed_tokens = 0;  // discarded by preemptions, to be computed again
  int64_t livelocks = 0;  // times that streams stopped making progress and were then run to completion by arrival
  int64_t swapped_out_tokens = 0;  // swapped out to host memory by preemptions
  int64_t swapped_in_tokens = 0;
  int64_t evicted_tokens = 0;  // dropped from running streams by their evictors
  int64_t attention_rows = 0;  // with KV format progressive: softmaxes of attention, one per head, token and layer
  int64_t flat_rows = 0;       // those of attention_rows that were flat and so read both parts of keys and values
  PrefixCacheStats prefix;
  KvStoreStats store;
  KeyStreamStats key_stream;
  WeightReadStats weights;
  AttentionWorkerStats attention_workers;
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

  // Compiles the request's constraint first if it is not compiled yet. Errors: user (an empty or too long prompt, a
  // token out of range, a sampling option), resource (queue full), and the errors of compile().
  Result<std::unique_ptr<Stream>> submit(Request request);

  // Variant that passes every event to `sink` on the engine's thread. `sink` must move the event out and return
  // quickly. The first event may arrive before submit() returns. The request runs until its last event or cancel().
  using EventSink = std::function<void(TokenEvent&&)>;
  Result<RequestId> submit(Request request, EventSink sink, std::shared_ptr<QueuePlace> place = nullptr);
  void cancel(RequestId id);

  // Reserves a place in the queue for work that submits several requests one after the other, each of at most `tokens`
  // tokens. If the queue is full, the work is thus refused before it begins. A request submitted with the place
  // occupies it until its last event, and is not refused because too many requests are open or their memory is too
  // large. While the place is occupied, a further request submitted with it is treated like one without a place. The
  // place is released when its last copy is destroyed; copies may outlive the engine. Errors: resource (queue full).
  Result<std::shared_ptr<QueuePlace>> take_place(int64_t tokens);
  // Raises the request's priority to `priority` from the next step on; never lowers it.
  void raise(RequestId id, int64_t priority);

  // Returns the error that submit() would return for this request, except for a full queue and errors of compile().
  Result<void> check(const Request& request) const;

  // Compiles a constraint on the calling thread, with bounded memory and time. If submit() must not block, call
  // compile() on another thread and keep its result until submit() has returned. Errors: user (syntax, unsatisfiable),
  // unsupported (a construct, or too large), resource (no memory now), cancelled.
  Result<CompiledConstraint> compile(const Constraint& constraint, const CompileOrder& order = {}) const;
  // Returns the result of compile() if it is already known, else nullopt.
  std::optional<Result<CompiledConstraint>> compiled(const Constraint& constraint) const;

  // Loads a LoRA adapter for requests that name it, on the calling thread. If the name exists, the new adapter replaces
  // the old one; running streams keep the old one. Errors: corrupt, unsupported, user, resource.
  Result<void> load_adapter(const std::string& name, const std::string& path);
  bool unload_adapter(const std::string& name);  // false: no such adapter
  std::vector<AdapterInfo> adapters() const;

  EngineStats stats() const;
  EngineLiveness liveness() const;

  // Requests a snapshot. The engine's thread passes it to `sink` between two steps; `sink` must move it out and return
  // quickly. Steps are recorded from the first snapshot on, as long as snapshots are requested. Returns true if `sink`
  // will be called exactly once; if the engine stops first, `sink` receives an empty snapshot with `stopped` set.
  // Returns false if the engine has stopped or kMaxSnapshots are already pending; `sink` is then never called.
  static constexpr size_t kMaxSnapshots = 8;
  using SnapshotSink = std::function<void(EngineSnapshot&&)>;
  [[nodiscard]] bool snapshot(SnapshotSink sink);
  int64_t context() const;  // maximum tokens of a stream
  // Returns the maximum prompt length, in tokens, for which all keys and values can be kept: context(), or less if the
  // KV cache is smaller.
  int64_t longest_kept() const;
  int64_t most_requests() const;  // maximum of requests that run or wait in the queue

  // save_prefix() saves the keys and values of the leading tokens of the request's prompt to a file: the tokens whose
  // full blocks are in the prefix cache. load_prefix() loads such a file into the prefix cache, for requests with the
  // tenant, prefix group and adapters of `request`; the prompt is read from the file. Both return the number of tokens.
  // They wait for the engine's thread, so an EventSink must not call them. Errors: user (nothing cached; a file of
  // another model, machine or KV format), corrupt, unsupported, resource.
  Result<int64_t> save_prefix(const Request& request, const std::string& path);
  Result<int64_t> load_prefix(const Request& request, const std::string& path);

 private:
  Engine();
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace millrace
