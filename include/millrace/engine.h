// Engine: runs many requests over one model at once. submit() and cancel() may be called from any thread; one thread
// of the engine's own does the work.
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

  // Waits for the next event; nothing after the one whose `last` is set.
  std::optional<TokenEvent> next();
  // The same with a limit; `timed_out` tells a time-out from the end.
  std::optional<TokenEvent> next(std::chrono::milliseconds limit, bool* timed_out);

  void cancel();

 private:
  friend class Engine;
  struct State;
  explicit Stream(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

// Of the file that EngineOptions::kv_ssd names.
struct KvStoreStats {
  bool open = false;
  bool io_uring = false;  // else pread and pwrite
  bool direct = false;    // past the page cache
  int64_t capacity_blocks = 0;
  int64_t blocks = 0;           // stored now
  int64_t unread_slots = 0;     // after the start: of its places, those whose contents are not known yet
  int64_t hit_tokens = 0;       // came back from it, and were not computed
  int64_t passed_tokens = 0;    // were there, but would have taken longer to load than to compute
  int64_t failed_tokens = 0;    // did not come back whole, and were computed
  int64_t left_out_tokens = 0;  // were there, and were left out of their streams' attention
  int64_t read_bytes = 0, written_bytes = 0;
  int64_t dropped_blocks = 0;  // not stored: too many writes were under way, or one failed
  int64_t corrupt_blocks = 0;  // found damaged
};

// Memory by what it is for: "weights", "KV", "activations" ...
struct MemoryUse {
  std::string name;
  int64_t bytes = 0;  // taken now
  int64_t peak = 0;
};

// The prefix cache since the engine began.
struct PrefixCacheStats {
  int64_t queries = 0;       // lookups, one an admission
  int64_t query_tokens = 0;  // that were looked up
  int64_t hit_tokens = 0;    // of those, found
  int64_t stored_blocks = 0;
  int64_t erased_blocks = 0;
  AgeHistogram lifetime;   // of erased blocks: since they were stored
  AgeHistogram idle;       // of erased blocks: since their last use
  AgeHistogram reuse_gap;  // of uses: since the one before
};

// Tokens that steps computed, prompts' and answers', in buckets that double: bucket i counts the steps of at most 2^i
// tokens that are not in the one before, the last one all that are larger.
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

struct EngineStats {
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t kv_blocks = 0;
  int64_t kv_blocks_free = 0;    // on the free list
  int64_t kv_blocks_cached = 0;  // held by the prefix index alone or with streams
  int64_t kv_bytes = 0;
  int64_t scratch_bytes = 0;
  int64_t steps = 0;
  StepTokens step_tokens;
  int64_t prompt_tokens = 0;  // computed
  int64_t cached_tokens = 0;  // taken from the prefix index instead
  int64_t generated_tokens = 0;
  int64_t preemptions = 0;
  int64_t recomputed_tokens = 0;  // whose keys and values were given back at preemptions, to be computed again
  int64_t livelocks = 0;          // times streams no longer came forward, and were run to their end in order of arrival
  int64_t swapped_out_tokens = 0;  // ... or moved to host memory
  int64_t swapped_in_tokens = 0;
  PrefixCacheStats prefix;
  KvStoreStats store;
  int64_t memory_budget = 0;      // LoadOptions::memory
  std::vector<MemoryUse> memory;  // of the model and all engines over it
};

struct AdapterInfo {
  std::string name;
  std::string path;
  int64_t rank = 0;      // the largest
  int64_t matrices = 0;  // that it changes
  int64_t bytes = 0;     // in memory
};

// Whether the engine's thread comes forward.
struct EngineLiveness {
  bool stopped = false;     // it has ended, and takes no requests
  double step_seconds = 0;  // since the step under way began; 0 between steps
};

class Engine {
 public:
  // Errors: user (an option), resource (memory).
  static Result<std::unique_ptr<Engine>> create(std::shared_ptr<const LanguageModel> model,
                                                const EngineOptions& options = {});
  ~Engine();  // cancels what still runs

  // Errors: user (an empty or too long prompt, a token out of range, a sampling option), resource (queue full), and
  // those of compile(), which it calls for a constraint that nobody has compiled.
  Result<std::unique_ptr<Stream>> submit(Request request);

  // The same, with every event handed to `sink` on the engine's thread, which waits for it: take the event over and
  // return. The first one may come before submit() returns. Such a request goes on until its last event or cancel().
  using EventSink = std::function<void(TokenEvent&&)>;
  Result<RequestId> submit(Request request, EventSink sink);
  void cancel(RequestId id);

  // What submit() would refuse whatever else runs; a full queue is not among it, nor what compile() says.
  Result<void> check(const Request& request) const;

  // Compiles what an answer is to be held to, on the calling thread, within bounds of memory and time. For those who
  // must not wait in submit(): compile elsewhere, and keep the result until submit() has returned. Errors: user
  // (syntax, nothing satisfies it), unsupported (a construct, or too large), resource (no memory now), cancelled.
  Result<CompiledConstraint> compile(const Constraint& constraint, const CompileOrder& order = {}) const;
  // What compile() gives, where that is known already.
  std::optional<Result<CompiledConstraint>> compiled(const Constraint& constraint) const;

  // LoRA adapters, for requests that name them. Loading one under a name that is there replaces it; streams go on with
  // what they began with. The file is read on the calling thread. Errors: corrupt, unsupported, user, resource.
  Result<void> load_adapter(const std::string& name, const std::string& path);
  bool unload_adapter(const std::string& name);  // false: there is none of that name
  std::vector<AdapterInfo> adapters() const;

  EngineStats stats() const;
  EngineLiveness liveness() const;

  // Asks for a snapshot at the engine, which `sink` gets on the engine's thread between two steps: take it over and
  // return. Steps are recorded from the first snapshot on, until none is asked for. True: `sink` is called once, and if
  // the engine stops before with a snapshot that says so and holds nothing else. False: it never will be, because the
  // engine has stopped or so many are asked for already.
  static constexpr size_t kMaxSnapshots = 8;
  using SnapshotSink = std::function<void(EngineSnapshot&&)>;
  [[nodiscard]] bool snapshot(SnapshotSink sink);
  int64_t context() const;

 private:
  Engine();
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace millrace
