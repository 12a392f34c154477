#include "models/model_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "attention/workers/workers.h"
#include "models/background_packer.h"
#include "models/blocks/early_exit.h"
#include "models/disk_keys.h"
#include "models/npu/products.h"
#include "models/two_batches.h"
#include "models/weight_source.h"

namespace millrace {
namespace {

// A switch of what the model does not have would change nothing, and reports would name it all the same.
Result<void> check_switches(const ArchSpec& spec, const ForwardSwitches& switches) {
  const bool experts = spec.moe.experts > 0 || std::ranges::any_of(spec.layers, &LayerSpec::moe);
  if (switches.expert_capacity > 0 && !experts)
    return Error::unsupported("kernel padded_experts: the model has no mixture of experts");
  return {};
}

double keys_on_disk(const Model& model) { return model.source() ? model.source()->policy().keys_on_disk : 0; }

}  // namespace

ModelRunner::ModelRunner(const Model& model, std::shared_ptr<ThreadPool> threads)
    : model_(&model), threads_(std::move(threads)) {}

ModelRunner::~ModelRunner() = default;

// The workers create the pool's rows; the pool of the runner counts blocks.
Result<void> ModelRunner::start_workers(const KernelTable& kernels, RunnerOptions& options) {
  const ForwardSwitches& switches = options.limits.switches;
  if (!switches.workers) return {};
  if (options.pool || options.places.mode != KvPoolMode::paged)
    return Error::unsupported("kernel fastdecode: the model needs a paged pool of its own");
  if (switches.attention.shared_prefixes)
    return Error::unsupported(
        "kernel fastdecode does not go with kernel shared_prefix: workers read the keys of each stream; omit one");
  MILLRACE_TRY(workers_, AttentionWorkers::start(*switches.workers,
                                                 worker_sizes(model_->spec(), kernels.isa, options.layout,
                                                              options.blocks, options.places, options.limits)));
  options.layout = AttentionWorkers::without_rows(std::move(options.layout));
  return {};
}

Result<std::unique_ptr<ModelRunner>> ModelRunner::create(const Model& model, const KernelTable& kernels,
                                                         RunnerOptions options) {
  if (model.spec().encoder && !options.reads_hidden)
    return Error::unsupported(fmt::format(
        "this model is an encoder ({}): it embeds and ranks texts, and predicts no tokens; use embed, or serve it and "
        "send /v1/embeddings or /v1/rerank",
        model.spec().arch));
  MILLRACE_TRY_VOID(check_switches(model.spec(), options.limits.switches));
  auto runner = std::unique_ptr<ModelRunner>(new ModelRunner(model, std::move(options.threads)));
  if (options.places.states == 0) options.places.states = options.streams;
  MILLRACE_TRY_VOID(runner->start_workers(kernels, options));
  runner->pool_ = options.pool;
  if (!options.pool) {
    MILLRACE_TRY(KvPool kv, KvPool::create(std::move(options.layout), options.blocks, options.places));
    runner->pool_ = &runner->kv_.emplace(std::move(kv));
  }
  MILLRACE_TRY(ForwardContext context,
               ForwardContext::create(model.spec(), kernels, *runner->threads_, *runner->pool_, options.limits));
  runner->context_.emplace(std::move(context));
  if (options.limits.switches.npu) {
    MILLRACE_TRY(runner->npu_, NpuProducts::create(model, kernels, runner->threads_, options.limits));
  }
  runner->context_->first_kv_layer = options.first_layer;
  if (const double share = keys_on_disk(model); share > 0 && runner->kv_) {
    const std::string folder = std::filesystem::path(model.cache_path()).parent_path().string();
    MILLRACE_TRY(runner->disk_keys_, DiskKeys::create(*runner->kv_, share, folder));
    if (runner->disk_keys_->layers() > 0) runner->hooks().add(*runner->disk_keys_);
  }
  runner->context_->workers = runner->workers_.get();
  if (runner->workers_ && runner->workers_->lanes() > 1) {
    MILLRACE_TRY(ForwardContext second,
                 ForwardContext::create(model.spec(), kernels, *runner->threads_, *runner->pool_, options.limits));
    runner->halves_ = std::make_unique<TwoBatches>(std::move(second), *runner->workers_);
  }
  const int64_t vocab = std::max<int64_t>(1, model.spec().vocab);
  runner->most_read_rows_ =
      std::clamp<int64_t>(std::ssize(runner->read_space()) / vocab, 1, std::max<int64_t>(1, options.limits.tokens));
  Batch& batch = runner->batch_;
  batch.tokens.reserve(static_cast<size_t>(options.limits.tokens));
  batch.positions.reserve(static_cast<size_t>(options.limits.tokens));
  batch.embeddings.reserve(static_cast<size_t>(options.limits.tokens));
  batch.spans.reserve(static_cast<size_t>(options.streams));
  batch.exits.reserve(static_cast<size_t>(options.streams));
  if (runner->pool_->states().any()) batch.marks.reserve(static_cast<size_t>(options.limits.tokens));
  batch.output_rows.reserve(static_cast<size_t>(std::max(options.limits.tokens, options.limits.outputs)));
  reserve_tables(*runner->pool_, options.streams, options.limits.context, batch);
  for (auto& own : batch.window_spans) own.reserve(static_cast<size_t>(options.streams));
  reserve_visibility(options.streams, options.limits.tokens, batch);
  return runner;
}

Result<std::unique_ptr<ModelRunner>> ModelRunner::create_charged(const Model& model, const KernelTable& kernels,
                                                                 RunnerOptions options,
                                                                 const std::shared_ptr<MemoryAccounts>& accounts,
                                                                 const std::string& advice) {
  MILLRACE_TRY_VOID(options.layout.check());
  const ForwardBytes forward =
      ForwardContext::plan(model.spec(), options.limits, options.threads->threads(), options.layout);
  std::vector<MemoryHold> memory;
  const double in_memory = key_memory_share(options.layout, keys_on_disk(model));
  const auto kv = static_cast<double>(kv_pool_bytes(options.layout, options.blocks, options.places));
  for (const auto& [name, bytes] : {std::pair("KV", static_cast<int64_t>(std::ceil(in_memory * kv))),
                                    {"activations", forward.activations},
                                    {"logits", forward.logits}}) {
    MILLRACE_TRY(auto hold, MemoryHold::take(accounts, name, bytes, advice));
    memory.push_back(std::move(hold));
  }
  if (options.limits.switches.npu) {
    MILLRACE_TRY(auto hold, MemoryHold::take(accounts, "NPU", NpuProducts::bytes(model, options.limits), advice));
    memory.push_back(std::move(hold));
  }
  if (const int64_t state = options.layout.state_bytes(); state > 0) {
    if (options.places.states == 0) options.places.states = options.streams;
    MILLRACE_TRY(auto hold,
                 MemoryHold::take(accounts, options.layout.state_name(), options.places.states * state, advice));
    memory.push_back(std::move(hold));
  }
  MILLRACE_TRY(auto runner, create(model, kernels, std::move(options)));
  runner->memory_ = std::move(memory);
  return runner;
}

ModelRunner::Pass::Pass(ModelRunner& runner) : packing(runner.model_->packing()) {
  if (packing) packing->begin_pass();
  if (runner.workers_) runner.workers_->begin(0, runner.batch_);
}

ModelRunner::Pass::~Pass() {
  if (packing) packing->end_pass();
}

Result<void> ModelRunner::take_failure() {
  context_->failed = false;
  if (workers_) MILLRACE_TRY_VOID(workers_->take_failure());
  if (auto error = std::exchange(context_->read_error, {})) return *std::move(error);
  if (const WeightSource* source = model_->source()) return source->damage();
  return {};
}

void ModelRunner::start() {
  batch_.clear();
  context_->failed = false;
  context_->shares_keys = false;
  mix_ = nullptr;
  if (std::exchange(adapts_, false)) hooks().remove(adapters_);
  adapters_.runs.clear();
}

void ModelRunner::begin(std::span<const BlockId> blocks, int64_t slot, const LoraMix* mix, StateId state) {
  batch_.spans.push_back({batch_.size(), 0, slot, static_cast<int64_t>(batch_.block_tables.size()),
                          static_cast<int64_t>(blocks.size()), state, static_cast<int32_t>(batch_.spans.size())});
  batch_.block_tables.insert(batch_.block_tables.end(), blocks.begin(), blocks.end());
  mix_ = mix;
  if (!mix) return;
  if (!std::exchange(adapts_, true)) hooks().add(adapters_);
  adapters_.runs.push_back({batch_.size(), 0, mix});
}

// As long as every stream has the same slots in this group as in the first one, tables are equal entry by entry. From
// the first one that has not, the spans of this group are a list of their own.
void ModelRunner::begin_group(int64_t group, std::span<const BlockId> blocks, int64_t slot) {
  std::vector<int32_t>& tables = batch_.window_tables[static_cast<size_t>(group - 1)];
  std::vector<BatchSpan>& apart = batch_.window_spans[static_cast<size_t>(group - 1)];
  if (!apart.empty() || slot != batch_.spans.back().first_slot) {
    if (apart.empty()) apart.assign(batch_.spans.begin(), batch_.spans.end() - 1);
    apart.push_back({.first_slot = slot, .table = std::ssize(tables), .table_size = std::ssize(blocks)});
  }
  const BatchSpan& span = apart.empty() ? batch_.spans.back() : apart.back();
  assert(std::ssize(tables) == span.table && slot == span.first_slot);
  const auto own = std::min(blocks.size(), static_cast<size_t>(span.table_size));
  tables.insert(tables.end(), blocks.begin(), blocks.begin() + static_cast<ptrdiff_t>(own));
  tables.resize(static_cast<size_t>(span.table + span.table_size), 0);
}

// A pass without rows of prompts runs as if there were no device.
void ModelRunner::prepare_pass() {
  finish_window_spans();
  const bool runs = npu_ && npu_->begin(batch_);
  if (std::exchange(npu_runs_, runs) == runs) return;
  if (runs)
    hooks().add(*npu_);
  else
    hooks().remove(*npu_);
}

// All but slots and tables is that of the first group.
void ModelRunner::finish_window_spans() {
  for (auto& own : batch_.window_spans)
    for (size_t i = 0; i < own.size(); ++i) {
      const BatchSpan slots = own[i];
      own[i] = batch_.spans[i];
      own[i].first_slot = slots.first_slot;
      own[i].table = slots.table;
      own[i].table_size = slots.table_size;
    }
}

// Where more rows of logits fit: a small limit of outputs must not make the head read its weights for every few rows.
std::span<float> ModelRunner::read_space() {
  const std::span<float> own(context_->logits.as<float>(),
                             static_cast<size_t>(context_->logits.bytes()) / sizeof(float));
  const std::span<float> spare = context_->after_layers();
  return spare.size() > own.size() ? spare : own;
}

const float* ModelRunner::read_rows(std::span<const int32_t> rows, const ThreadPool::Turn&) {
  assert(std::ssize(rows) <= most_read_rows_);
  float* logits = read_space().data();
  model_->head_rows(rows, logits, *context_);
  return logits;
}

void ModelRunner::forward(const ThreadPool::Turn&) {
  prepare_pass();
  const Pass pass(*this);
  if (halves_ && halves_->split(batch_, *context_))
    halves_->forward(*model_, *context_);
  else
    model_->forward(batch_, *context_);
}

void ModelRunner::forward_hidden(const ThreadPool::Turn&) {
  prepare_pass();
  const Pass pass(*this);
  model_->embed(batch_, *context_);
  model_->hidden(model_->run_layers(batch_, 0, model_->spec().layer_count(), *context_), *context_);
}

void ModelRunner::forward_known(int64_t layers, std::span<const float* const> known, const ThreadPool::Turn&) {
  prepare_pass();
  const Pass pass(*this);
  const int64_t width = model_->spec().width;
  known_.assign(known.size(), 0);
  for (size_t t = 0; t < known.size(); ++t) known_[t] = known[t] != nullptr;
  keep_staying(batch_, known_, unknown_, unknown_rows_);
  for (size_t i = 0; const BatchEmbedding& one : batch_.embeddings) {
    while (i < unknown_rows_.size() && unknown_rows_[i] < one.token) ++i;
    if (i < unknown_rows_.size() && unknown_rows_[i] == one.token)
      unknown_.embeddings.push_back({static_cast<int64_t>(i), one.row});
  }
  if (unknown_.size() > 0) {
    adapters_.part();
    adapters_.keep(unknown_rows_);
    if (npu_runs_) npu_->part();
    if (npu_runs_) npu_->keep(unknown_rows_);
    model_->embed(unknown_, *context_);
    model_->run_layers(unknown_, 0, layers, *context_);
    model_->add_pending(unknown_.size(), *context_);
    adapters_.restore();
    if (npu_runs_) npu_->restore();
    const float* from = context_->residual.as<float>();
    behind_.assign(from, from + unknown_.size() * width);
  }
  model_->embed(batch_, *context_);  // for the rotations
  float* residual = context_->residual.as<float>();
  for (size_t t = 0, i = 0; t < known.size(); ++t) {
    const float* row = known[t] ? known[t] : behind_.data() + static_cast<int64_t>(i++) * width;
    std::copy_n(row, width, residual + static_cast<int64_t>(t) * width);
  }
  model_->head(model_->run_layers(batch_, layers, model_->spec().layer_count(), *context_), *context_);
}

}  // namespace millrace
