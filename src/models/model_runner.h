// ModelRunner: the objects that running a model takes, in one place: the thread pool, the KV pool, the working memory
// of a pass and the batch of the next one. The engine's executor, the scorer, the embedder, the benchmark and the tests
// all run their models through it, so a KV format or a hook of the pass reaches all of them. Not thread-safe; runners
// of several threads may share a thread pool, which they use in turns, one pass each.
//
//   start();  begin(blocks, slot); add(token, position) ...  begin(...) ...  forward();  logits()
#pragma once

#include <cassert>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "attention/key_summaries.h"
#include "base/memory_accounts.h"
#include "base/thread_pool.h"
#include "flow/batch.h"
#include "kv/pool.h"
#include "models/forward_context.h"
#include "models/lora/rows.h"
#include "models/model.h"
#include "models/visible.h"

namespace millrace {

class DiskKeys;
class NpuProducts;  // models/npu/products.h
class AttentionWorkers;
class TwoBatches;

struct RunnerOptions {
  std::shared_ptr<ThreadPool> threads;  // runners may share one
  KvLayout layout;
  int64_t blocks = 0;  // blocks of the KV pool
  // Another runner's pool, whose layers from `first_layer` on are those of this model; then layout, blocks and places
  // are not used. It outlives the runner. Null: the runner creates its own pool.
  KvPool* pool = nullptr;
  int64_t first_layer = 0;
  KvPoolOptions places;
  ForwardLimits limits;
  // The caller adds whole texts and reads their final hidden states. Other callers cannot run an encoder.
  bool reads_hidden = false;
  int64_t streams = 1;  // in one batch, about; of a recurrent model, also the states if places.states is 0
};

class ModelRunner {
 public:
  // `model` and `kernels` must outlive the runner. Errors: user (layout), unsupported (an encoder whose caller needs
  // logits), resource.
  static Result<std::unique_ptr<ModelRunner>> create(const Model& model, const KernelTable& kernels,
                                                     RunnerOptions options);
  // Variant that first charges the memory to `accounts` (KV, activations, logits), which then hold it as long as the
  // runner exists. `advice` ends the error message.
  static Result<std::unique_ptr<ModelRunner>> create_charged(const Model& model, const KernelTable& kernels,
                                                             RunnerOptions options,
                                                             const std::shared_ptr<MemoryAccounts>& accounts,
                                                             const std::string& advice);

  ~ModelRunner();
  ModelRunner(const ModelRunner&) = delete;
  ModelRunner& operator=(const ModelRunner&) = delete;

  const Model& model() const { return *model_; }
  ThreadPool& threads() const { return *threads_; }
  KvPool& kv() { return *pool_; }
  const ForwardLimits& limits() const { return context_->limits(); }
  ForwardContext& context() { return *context_; }
  const ForwardContext& context() const { return *context_; }
  ForwardHooks& hooks() { return context_->hooks; }
  AttentionWorkers* workers() const { return workers_.get(); }  // null: attention is in place
  LoraRows& adapters() { return adapters_; }                    // reserve() before streams use one
  const NpuProducts* npu() const { return npu_.get(); }         // null: no ForwardSwitches::npu

  // Keys of stored tokens move to positions that differ by `positions` (Model::move_keys()), between passes. Not where
  // the pool has further groups.
  void move_keys(std::span<const BlockId> blocks, int64_t slot, int64_t count, int64_t positions) {
    const ThreadPool::Turn turn(*threads_);
    model_->move_keys({blocks, slot, count, positions}, *context_);
  }

  // Stores given rows as those of the tokens added since start(), of one stream (Model::put_keys()).
  void put_keys(const GivenRows& rows) {
    const ThreadPool::Turn turn(*threads_);
    model_->put_keys(batch_, rows, *context_);
  }

  // The tokens that a stream keeps move to its first slots, where a codec encodes the pool's first group; between
  // passes.
  void compact_encoded(const KeptSlots& slots) {
    const ThreadPool::Turn turn(*threads_);
    context_->tiles.front().compact(slots, *threads_);
  }

  // Called between passes after the stored tokens of a stream have moved or changed their keys: computes the pattern's
  // summaries of the blocks from slot `begin` on again. Slots [0, end) are stored.
  void renew_summaries(std::span<const BlockId> blocks, int64_t begin, int64_t end) {
    const AttentionPattern* pattern = limits().switches.attention.pattern;
    if (!dynamic_pattern(pattern)) return;
    const ThreadPool::Turn turn(*threads_);
    CodecTiles* const tiles =
        context_->tiles.empty() || !context_->tiles.front().any() ? nullptr : &context_->tiles.front();
    summarize_again(blocks, begin, end, pattern, context_->kernels(), *threads_, *pool_, tiles);
  }

  // The batch of the next pass: start(), then begin() for each stream, then its tokens. `blocks` cover the slots of all
  // tokens added; the first one takes `slot`. `mix`, null for none, must live until the pass. `state`: the stream's
  // slot of recurrent states or of its KV tail, where it has one; slot 0 begins with an empty state.
  void start();
  // Its spans of one token read the keys that they have in common once (attention/shared_prefixes.h), with the same
  // bits: for callers that have many of them.
  void share_keys() { context_->shares_keys = true; }
  void begin(std::span<const BlockId> blocks, int64_t slot, const LoraMix* mix = nullptr, StateId state = 0);
  // Marks the tokens of the span as sampled or drafted, not part of a prompt.
  void answers() { batch_.spans.back().answer = true; }
  // The span's tokens leave the pass where `gate` says; null: nowhere. The gate must live until the pass.
  void exit_by(const ExitGate* gate) {
    if (!gate) return;
    batch_.spans.back().exit = static_cast<int32_t>(batch_.exits.size());
    batch_.exits.push_back(gate);
  }
  // The stream's recurrent state behind these tokens of the span, in ascending order, is copied into their slots.
  void mark_states(std::span<const StateMark> marks) {
    BatchSpan& span = batch_.spans.back();
    span.mark = static_cast<int32_t>(batch_.marks.size());
    span.mark_count = static_cast<int32_t>(marks.size());
    batch_.marks.insert(batch_.marks.end(), marks.begin(), marks.end());
  }
  // Sets the stream's blocks in a further group of the pool (kv/window_groups.h); called after begin(), for every group
  // in order. There the first token has slot `slot`, which differs if tokens of the first group were dropped.
  void begin_group(int64_t group, std::span<const BlockId> blocks, int64_t slot);
  void add(TokenId token, int64_t position, bool output = false) {
    if (output) batch_.output_rows.push_back(static_cast<int32_t>(batch_.tokens.size()));
    batch_.tokens.push_back(token);
    batch_.positions.push_back(static_cast<int32_t>(position));
    ++batch_.spans.back().count;
    if (mix_) ++adapters_.runs.back().count;
  }
  // Adds a token by its row of the embedding table (Model::embedding()) instead of an id. The row must live until the
  // pass.
  void add_embedding(std::span<const float> row, int64_t position, bool output = false) {
    assert(std::ssize(row) == model_->spec().width);
    batch_.embeddings.push_back({batch_.size(), row.data()});
    add(0, position, output);
  }
  // Says which slots the tokens added since begin() see, if these are not all slots up to their own. At most once per
  // stream, after its last add(). With recurrent layers only trees, whose tokens have marks (mixers/marked_pieces.h).
  void see(const VisibleKeys& visible) { add_visibility(visible, batch_); }
  const Batch& batch() const { return batch_; }
  int64_t tokens() const { return batch_.size(); }
  // Called after passes: returns the first error of reading weights since the last call, in any of this runner's
  // passes. Then nothing that these passes computed may be used; later passes may succeed. Errors: internal.
  Result<void> take_failure();
  int64_t outputs() const { return static_cast<int64_t>(batch_.output_rows.size()); }

  // Runs the batch: logits of its output rows, or only their final hidden states.
  void forward() {
    const ThreadPool::Turn turn(*threads_);
    forward(turn);
  }
  void forward(const ThreadPool::Turn&);  // for callers that hold the turn
  // The first layers only: the residual [tokens, width] of all tokens. Not of the model's last layer.
  void forward_first(int64_t layers, const ThreadPool::Turn&) {
    prepare_pass();
    const Pass pass(*this);
    model_->embed(batch_, *context_);
    model_->add_pending(model_->run_layers(batch_, 0, layers, *context_).size(), *context_);
  }
  // Runs the layers likewise, and stores the keys and values of the layer behind them.
  void forward_to_keys(int64_t layer, const ThreadPool::Turn&) {
    prepare_pass();
    const Pass pass(*this);
    model_->embed(batch_, *context_);
    model_->run_layers(batch_, 0, layer, *context_);
    model_->store_keys(batch_, layer, *context_);
  }
  // As forward(), for a batch some of whose tokens have run the first `layers` layers before, in other passes that have
  // stored their keys and values. `known`: by token, the residual [width] behind these layers; null: the token runs
  // all. Observers see every token in the other layers only.
  void forward_known(int64_t layers, std::span<const float* const> known, const ThreadPool::Turn&);
  // For a batch without output rows: runs the layers from `layer` on. `rows`: the output of the layers before them for
  // its tokens, the residual of forward_to_keys().
  void forward_from(int64_t layer, std::span<const float> rows, const ThreadPool::Turn&) {
    prepare_pass();
    const Pass pass(*this);
    model_->embed(batch_, *context_);  // for the rotations
    std::ranges::copy(rows, residual().begin());
    model_->run_layers(batch_, layer, model_->spec().layer_count(), *context_);
  }
  // [tokens, width]
  std::span<float> residual() {
    return {context_->residual.as<float>(), static_cast<size_t>(tokens() * model_->spec().width)};
  }
  void forward_hidden() {
    const ThreadPool::Turn turn(*threads_);
    forward_hidden(turn);
  }
  void forward_hidden(const ThreadPool::Turn&);
  // After forward_hidden(), in the same turn: logits of some of its rows, at most limits().outputs, as of forward().
  void head_rows(std::span<const int32_t> rows, const ThreadPool::Turn&) {
    assert(std::ssize(rows) <= limits().outputs);
    model_->head_rows(rows, logits(), *context_);
  }
  // Variant for at most most_read_rows() rows; the next pass overwrites the result. Returns [rows, vocab].
  const float* read_rows(std::span<const int32_t> rows, const ThreadPool::Turn&);
  int64_t most_read_rows() const { return most_read_rows_; }
  // Valid until the next pass.
  float* logits(int64_t row = 0) { return context_->logits.as<float>() + row * model_->spec().vocab; }
  const float* hidden(int64_t row = 0) { return context_->normed.as<float>() + row * model_->spec().width; }

 private:
  ModelRunner(const Model& model, std::shared_ptr<ThreadPool> threads);

  // Tells the model's BackgroundPacker and the attention workers about a pass of one batch.
  struct Pass {
    explicit Pass(ModelRunner& runner);
    ~Pass();
    BackgroundPacker* packing;
  };

  void prepare_pass();
  Result<void> start_workers(const KernelTable& kernels, RunnerOptions& options);
  void finish_window_spans();
  std::span<float> read_space();

  const Model* model_;
  std::shared_ptr<ThreadPool> threads_;
  std::vector<MemoryHold> memory_;
  std::optional<KvPool> kv_;  // its own
  KvPool* pool_ = nullptr;
  std::optional<ForwardContext> context_;
  std::unique_ptr<AttentionWorkers> workers_;
  std::unique_ptr<TwoBatches> halves_;  // null: a pass is one batch
  LoraRows adapters_;
  std::shared_ptr<NpuProducts> npu_;  // null: no ForwardSwitches::npu
  Batch batch_;
  Batch unknown_;                      // forward_known(): the tokens that run all layers,
  std::vector<int32_t> unknown_rows_;  // ... their indices,
  std::vector<float> behind_;          // ... and their residual behind the first layers
  std::vector<uint8_t> known_;         // ... 1: the token is not among them
  int64_t most_read_rows_ = 1;
  const LoraMix* mix_ = nullptr;         // mix of the stream that was begun last
  bool adapts_ = false;                  // the batch has rows with adapters, which are a hook of its pass
  std::shared_ptr<DiskKeys> disk_keys_;  // null: all keys are in memory
  bool npu_runs_ = false;                // npu_ is a hook of the present pass
};

}  // namespace millrace
