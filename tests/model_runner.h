// ModelRunner: one model, one KV pool, one stream; logits of any token list in any chunking. For tests only.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "models/lora/adapter.h"
#include "models/model.h"

namespace millrace::testing {

class ModelRunner {
 public:
  struct Options {
    int threads = 1;
    int64_t context = 0;
    const char* kv_format = "f32";
    int64_t block_tokens = 16;
    int64_t max_tokens = 512;
  };

  static Result<std::unique_ptr<ModelRunner>> load(const std::string& path, Options options) {
    MILLRACE_TRY(auto files, open_model_files(path));
    return load(std::make_shared<const ModelFiles>(std::move(files)), options);
  }

  static Result<std::unique_ptr<ModelRunner>> load(std::shared_ptr<const ModelFiles> files, Options options) {
    auto runner = std::unique_ptr<ModelRunner>(new ModelRunner(options.threads));
    MILLRACE_TRY(Isa isa, select_isa());
    runner->table_ = make_kernel_table(isa);
    runner->files_ = files;
    MILLRACE_TRY(runner->model_,
                 Model::load(std::move(files), runner->table_, runner->pool_, {.context = options.context}));
    const int64_t context = std::min<int64_t>(runner->model_->context(), 2048);
    KvLayout layout{find_format(options.kv_format), options.block_tokens, runner->model_->kv_layers()};
    MILLRACE_TRY(auto kv, KvPool::create(layout, context / options.block_tokens + 1));
    runner->kv_ = std::make_unique<KvPool>(std::move(kv));
    MILLRACE_TRY(auto forward, ForwardContext::create(runner->model_->spec(), runner->table_, runner->pool_,
                                                      *runner->kv_, {options.max_tokens, options.max_tokens, context}));
    runner->context_ = std::make_unique<ForwardContext>(std::move(forward));
    for (int64_t i = 0; i < runner->kv_->total_blocks(); ++i) runner->blocks_.push_back(*runner->kv_->allocate());
    return runner;
  }

  const Model& model() const { return *model_; }

  // From now on logits() runs with this adapter too.
  Result<void> add_adapter(const std::string& path, float scale = 1.0f) {
    MILLRACE_TRY(auto adapter, LoraAdapter::load(path, *model_, *files_, table_));
    MILLRACE_TRY_VOID(context_->lora.reserve(model_->spec(), adapter->rank()));
    mix_.push_back({std::move(adapter), scale});
    return {};
  }

  ForwardContext& context() { return *context_; }
  KvPool& kv() { return *kv_; }
  const std::vector<BlockId>& blocks() const { return blocks_; }

  // Logits of every position, [tokens, vocab], with the prompt run in chunks of `chunk` (0: all at once).
  std::vector<float> logits(const std::vector<TokenId>& tokens, int64_t chunk = 0) {
    std::vector<float> out;
    const int64_t total = static_cast<int64_t>(tokens.size());
    for (int64_t first = 0, count; first < total; first += count) {
      count = std::min(chunk > 0 ? chunk : total, total - first);
      step(std::span(tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(count)), first);
      out.insert(out.end(), context_->logits.as<float>(), context_->logits.as<float>() + count * model_->spec().vocab);
    }
    return out;
  }

  // One step over `tokens`, the first of which takes slot `first`; logits of all in context().
  void step(std::span<const TokenId> tokens, int64_t first) {
    const int64_t count = static_cast<int64_t>(tokens.size());
    Batch batch;
    batch.block_tables = blocks_;
    batch.spans.push_back({0, count, first, 0, static_cast<int64_t>(blocks_.size())});
    for (int64_t i = 0; i < count; ++i) {
      batch.tokens.push_back(tokens[static_cast<size_t>(i)]);
      batch.positions.push_back(static_cast<int32_t>(first + i));
      batch.output_rows.push_back(static_cast<int32_t>(i));
    }
    context_->lora.runs.clear();
    if (!mix_.empty()) context_->lora.runs.push_back({0, count, &mix_});
    model_->forward(batch, *context_);
  }

 private:
  explicit ModelRunner(int threads) : pool_(threads) {}
  ThreadPool pool_;
  KernelTable table_;
  std::shared_ptr<const ModelFiles> files_;
  std::unique_ptr<Model> model_;
  LoraMix mix_;
  std::unique_ptr<KvPool> kv_;
  std::unique_ptr<ForwardContext> context_;
  std::vector<BlockId> blocks_;
};

}  // namespace millrace::testing
