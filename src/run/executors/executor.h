// Executor: computes planned steps. The engine's loop (engine/engine_core.h) decides which tokens of which streams run;
// an executor computes them: with a model on this machine (cpu_executor.h), or by a cost model on a virtual clock
// (simulated_executor.h). Its parts are interfaces of their own:
//
//   home()         KvHome          the pool of blocks, its tiers and stores
//   chooser()      TokenChooser    from logits to tokens and text
//   draft_model()  DraftModel      the second model of a drafter
//   documents()    DocumentPlacer  documents of contexts
//
// Not thread-safe, except check().
#pragma once

#include "base/memory_accounts.h"
#include "run/compatibility/facts.h"
#include "run/documents/document_placer.h"
#include "run/executors/kv_home.h"
#include "run/executors/step_input.h"
#include "run/executors/token_chooser.h"
#include "schedule/cost_model.h"

namespace millrace {

class AdapterRegistry;
class AttentionWorkers;
class DraftModel;
class WeightSource;

struct ExecutorLimits {
  int64_t context = 0;  // tokens of the longest stream
  int64_t tokens = 0;   // in one step
  int64_t outputs = 0;  // rows of logits in one step: of sampled chunks and their drafted tokens
  int64_t scratch_bytes = 0;
  int64_t request_bytes = 0;   // bytes of all open requests together (request_memory()); 0: no limit
  int64_t drafts = 0;          // tokens of the longest draft; 0: no drafter
  int64_t vocab = 0;           // tokens of the model; 0: unknown
  bool whole_prompts = false;  // a prompt runs in one step: its tokens see those behind them
  bool prompts_apart = false;  // tokens of prompts are computed in another way than those of answers
  bool reads_tables = true;    // forward() reads block tables, which a StepInput then has
  int64_t gate_dims = 0;       // floats by which gates judge a stored token in a layer (models/token_gates.h)
  int64_t layers = 0;  // layers of the model, and KV heads of each, where evictors have budgets for them; 0: unknown
  int64_t kv_heads = 0;
};

// The parts of an executor in addition to its passes. The executor owns them.
struct ExecutorParts {
  KvHome* home = nullptr;                     // never null
  TokenChooser* chooser = nullptr;            // never null
  DraftModel* draft_model = nullptr;          // null: the drafter has no second model
  DocumentPlacer* documents = nullptr;        // null: refuses contexts
  AdapterRegistry* adapters = nullptr;        // LoRA; thread-safe; null: not supported
  CostModel* cost = nullptr;                  // predicts the duration of steps; null: the engine learns a model
  const MemoryAccounts* accounts = nullptr;   // count its memory; null: none
  const WeightSource* weights = nullptr;      // reads the model's weights; null: they are in memory
  const AttentionWorkers* workers = nullptr;  // hold keys and values; null: they are in this process
};

class Executor {
 public:
  virtual ~Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  const ExecutorParts& parts() const { return parts_; }
  KvHome& home() const { return *parts_.home; }
  TokenChooser& chooser() const { return *parts_.chooser; }
  DraftModel* draft_model() const { return parts_.draft_model; }
  DocumentPlacer* documents() const { return parts_.documents; }
  AdapterRegistry* adapters() const { return parts_.adapters; }
  CostModel* cost() const { return parts_.cost; }
  const MemoryAccounts* accounts() const { return parts_.accounts; }
  const WeightSource* weights() const { return parts_.weights; }
  const AttentionWorkers* workers() const { return parts_.workers; }

  virtual const ExecutorLimits& limits() const = 0;
  // Refuses requests whose values are out of this executor's range; does not look into the constraint. Any thread.
  // Errors: user, unsupported.
  virtual Result<void> check(const Request& request) const = 0;
  // Facts of the engine, which decide what requests may ask for (compatibility/rules.h). By default the facts of an
  // executor that computes nothing.
  virtual const Facts& facts() const {
    static const Facts bare = [] {
      Facts out;
      for (const Fact* fact : {&facts::kNoGates, &facts::kNoMass, &facts::kNoKeys, &facts::kNoSecondModel})
        out.add(*fact, "this executor");
      return out;
    }();
    return bare;
  }

  // From now on, forward() returns the attention mass of observed chunks, if it can.
  virtual void observe_attention() {}
  // Computes the chunks and stores their keys and values. Replaces what is in `output`.
  virtual void forward(const StepInput& input, StepOutput& output) = 0;
  // After forward(): an error with which every stream of the step ends, because the model's weights are damaged or
  // could not be read. Engine thread only.
  virtual Result<void> failure() const { return {}; }
  // Called before a step is planned. Returns true once after the keys and values of all streams and prefixes were lost,
  // because other processes hold them. Engine thread only.
  virtual bool take_loss() { return false; }
  // Logits of the last step's outputs, in plan order; null if there are none.
  virtual const float* logits() const { return nullptr; }

 protected:
  Executor() = default;
  // Called once, before the executor is used; by executors that wrap another one, with some of its parts.
  void set_parts(const ExecutorParts& parts) { parts_ = parts; }

 private:
  ExecutorParts parts_;
};

// The placer of `executor`'s documents. Errors: unsupported (it has none).
inline Result<DocumentPlacer*> find_placer(const Executor& executor) {
  if (!executor.documents()) return Error::unsupported("context: this executor computes no keys that it could move");
  return executor.documents();
}

}  // namespace millrace
