// A text that is computed chunk by chunk with an evictor at work on it, in a runner whose layers have blocks of their
// own: what an engine does for one stream, step by step.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "kv/compact_kept.h"
#include "models/eviction_observer.h"
#include "run/language_model.h"

namespace millrace::testing {

class EvictedText {
 public:
  // A text of at most `tokens` tokens, all of them a prompt; blocks of 4.
  EvictedText(const LanguageModel& model, const std::string& evictor, int64_t tokens, int64_t chunk) : chunk_(chunk) {
    const auto rule = make_eviction_rule(evictor);
    if (!rule.ok()) throw std::runtime_error(rule.error().message);  // ends the test
    const auto& parts = model.parts();
    const int64_t layers = parts.model->spec().layer_count(), blocks = tokens / 4 + 1;
    KvLayout layout{find_format("f32"), 4, parts.model->kv_layers()};
    layout.use_layer_tables();
    auto made = ModelRunner::create(*parts.model, parts.kernels,
                                    {.threads = std::make_shared<ThreadPool>(2),
                                     .layout = std::move(layout),
                                     .blocks = blocks * layers,
                                     .limits = {chunk, chunk, 4 * blocks}});
    EXPECT_TRUE(made.ok());
    runner_ = std::move(*made);
    tables_.resize(static_cast<size_t>(layers));
    for (auto& table : tables_)
      for (int64_t i = 0; i < blocks; ++i) table.push_back(*runner_->kv().allocate());
    eviction_ = std::make_unique<TokenEviction>(*rule, tokens, tokens + 1, runner_->kv().layout().heads(), layers);
    observer_ = std::make_unique<EvictionObserver>(*runner_);
  }

  // The next chunk, of which `tokens` has the rest of the text. Returns the logits of its tokens.
  std::vector<float> next(std::span<const TokenId> tokens) {
    const int64_t count = std::min({chunk_, std::ssize(tokens), eviction_->next() - computed_});
    runner_->start();
    observer_->start();
    runner_->begin(tables_[0], computed_ - eviction_->evicted(0));
    for (int64_t g = 1; g < std::ssize(tables_); ++g)
      runner_->begin_group(g, tables_[static_cast<size_t>(g)],
                           computed_ - eviction_->evicted(eviction_->layers() > 1 ? g : 0));
    for (int64_t i = 0; i < count; ++i) runner_->add(tokens[static_cast<size_t>(i)], computed_ + i, true);
    observer_->add(*eviction_);
    runner_->forward();
    computed_ += count;
    std::vector<float> logits(runner_->logits(), runner_->logits(count));
    if (computed_ == eviction_->next()) {
      eviction_->decide();
      compact_kept(runner_->kv(), *eviction_, [&](int64_t g) { return std::span(tables_[static_cast<size_t>(g)]); });
    }
    return logits;
  }
  // All of it.
  std::vector<float> all(std::span<const TokenId> tokens) {
    std::vector<float> logits;
    while (computed_ < std::ssize(tokens)) {
      const auto some = next(tokens.subspan(static_cast<size_t>(computed_)));
      logits.insert(logits.end(), some.begin(), some.end());
    }
    return logits;
  }

  ModelRunner& runner() { return *runner_; }
  TokenEviction& eviction() { return *eviction_; }
  int64_t computed() const { return computed_; }

 private:
  int64_t chunk_, computed_ = 0;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<std::vector<BlockId>> tables_;
  std::unique_ptr<TokenEviction> eviction_;
  std::unique_ptr<EvictionObserver> observer_;
};

}  // namespace millrace::testing
