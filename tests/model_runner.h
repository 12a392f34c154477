// TestRunner: a model in a ModelRunner with one stream; logits of any token list in any chunking. For tests.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "models/lora/adapter.h"
#include "models/model_runner.h"

namespace millrace::testing {

class TestRunner {
 public:
  struct Options {
    int threads = 1;
    int64_t context = 0;
    const char* kv_format = "f32";
    int64_t block_tokens = 16;
    int64_t max_tokens = 512;
    double residual_below = 0;  // KvLayout::residual_below
    std::string pattern = "";   // static attention pattern
  };

  static Result<std::unique_ptr<TestRunner>> load(const std::string& path, Options options) {
    MILLRACE_TRY(auto files, open_model_files(path));
    return load(std::make_shared<const ModelFiles>(std::move(files)), options);
  }

  static Result<std::unique_ptr<TestRunner>> load(std::shared_ptr<const ModelFiles> files, Options options) {
    auto runner = std::unique_ptr<TestRunner>(new TestRunner());
    auto threads = std::make_shared<ThreadPool>(options.threads);
    MILLRACE_TRY(Isa isa, select_isa());
    runner->table_ = make_kernel_table(isa);
    runner->files_ = files;
    MILLRACE_TRY(runner->model_, Model::load(std::move(files), runner->table_, *threads, {.context = options.context}));
    const int64_t context = std::min<int64_t>(runner->model_->context(), 2048);
    KvLayout layout{find_format(options.kv_format), options.block_tokens, runner->model_->kv_layers()};
    layout.residual_below = options.residual_below;
    const std::vector<std::string> chosen(options.pattern.empty() ? 0 : 1, "attention=" + options.pattern);
    MILLRACE_TRY(const ForwardSwitches switches, make_forward_switches(chosen));
    MILLRACE_TRY(runner->runner_,
                 ModelRunner::create(*runner->model_, runner->table_,
                                     {.threads = std::move(threads),
                                      .layout = std::move(layout),
                                      .blocks = context / options.block_tokens + 1,
                                      .limits = {options.max_tokens, options.max_tokens, context, switches}}));
    for (int64_t i = 0; i < runner->kv().total_blocks(); ++i) runner->blocks_.push_back(*runner->kv().allocate());
    return runner;
  }

  const Model& model() const { return *model_; }

  // From now on logits() runs with this adapter too.
  Result<void> add_adapter(const std::string& path, float scale = 1.0f) {
    MILLRACE_TRY(auto adapter, LoraAdapter::load(path, *model_, *files_, table_));
    MILLRACE_TRY_VOID(runner_->adapters().reserve(model_->spec(), adapter->rank()));
    mix_.push_back({std::move(adapter), scale});
    return {};
  }

  ModelRunner& runner() { return *runner_; }
  ForwardContext& context() { return runner_->context(); }
  KvPool& kv() { return runner_->kv(); }
  const std::vector<BlockId>& blocks() const { return blocks_; }

  // Logits of every position, [tokens, vocab], with the prompt run in chunks of `chunk` (0: all at once).
  std::vector<float> logits(const std::vector<TokenId>& tokens, int64_t chunk = 0) {
    std::vector<float> out;
    const int64_t total = static_cast<int64_t>(tokens.size());
    for (int64_t first = 0, count; first < total; first += count) {
      count = std::min(chunk > 0 ? chunk : total, total - first);
      step(std::span(tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(count)), first);
      out.insert(out.end(), runner_->logits(), runner_->logits(count));
    }
    return out;
  }

  // One step over `tokens`, the first of which takes slot `first`; logits of all in context().
  void step(std::span<const TokenId> tokens, int64_t first) {
    fill(tokens, first);
    runner_->forward();
  }
  // Only its batch.
  void fill(std::span<const TokenId> tokens, int64_t first) {
    runner_->start();
    runner_->begin(blocks_, first, mix_.empty() ? nullptr : &mix_);
    for (size_t i = 0; i < tokens.size(); ++i) runner_->add(tokens[i], first + static_cast<int64_t>(i), true);
  }

 private:
  TestRunner() = default;
  KernelTable table_;
  std::shared_ptr<const ModelFiles> files_;
  std::unique_ptr<Model> model_;
  LoraMix mix_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<BlockId> blocks_;
};

}  // namespace millrace::testing
