// A plain reference of evictors with budgets by layer or KV head: one token at a time, a block table of single tokens
// for each of these, and sums in double precision.
#pragma once

#include <gtest/gtest.h>

#include <map>

#include "kv/token_evictor.h"
#include "properties/evictor_runs.h"

namespace millrace::testing {

// Attention of one query by its definition, summed over the heads of each layer; or how many heads pay an even share;
// or the norms of its token's keys, subtracted.
class PlainLayerMass final : public ForwardObserver {
 public:
  bool active = false, shares = false, norms = false;
  std::vector<std::vector<double>> sums;  // by layer, of its slots
  void queries(const AttentionInput& in) override {
    if (!active) return;
    std::vector<double>& own = sums[static_cast<size_t>(in.layer.layer)];
    if (norms) {
      for (int64_t head = 0; head < in.layer.kv_heads; ++head) own.back() -= plain_key_norm(in, own.size() - 1, head);
      return;
    }
    plain_attention(in, own.size(), [&](int64_t, const std::vector<double>& weights) {
      for (size_t slot = 0; slot < own.size(); ++slot) {
        const double even = 1 / static_cast<double>(own.size());
        own[slot] += shares ? (weights[slot] >= even ? 1 : 0) : weights[slot];
      }
    });
  }
};

// One token at a time, blocks of one token, and a token that a layer drops is an entry that leaves its table. The votes
// and the cascade by their definitions.
class PlainLayers {
 public:
  PlainLayers(const LanguageModel& model, const EvictionRule& rule, int64_t prompt, int64_t queries, int64_t newest,
              int64_t reach)
      : rule_(rule), queries_(queries), newest_(newest), reach_(reach) {
    const auto& parts = model.parts();
    KvLayout layout{find_format("f32"), 1, parts.model->kv_layers()};
    layout.use_layer_tables();
    if (rule.by_head()) {
      EXPECT_TRUE(layout.use_per_head_tables().ok());
    }
    layers_ = layout.tables();
    auto made = ModelRunner::create(*parts.model, parts.kernels,
                                    {.threads = std::make_shared<ThreadPool>(1),
                                     .layout = std::move(layout),
                                     .blocks = 128 * layers_,
                                     .limits = {16, 16, 128}});
    EXPECT_TRUE(made.ok());
    runner_ = std::move(*made);
    tables_.resize(static_cast<size_t>(layers_));
    positions_.resize(static_cast<size_t>(layers_));
    observer_.sums.resize(static_cast<size_t>(layers_));
    runner_->hooks().add(observer_);
    observer_.shares = rule.evictor->mass_rule().shares;
    observer_.norms = rule.evictor->judges_keys();
    next_ = INT64_MAX;
    for (int64_t layer = 0; layer < layers_; ++layer)
      next_ = std::min(next_, rule.evictor->budget_of(layer, layers_) + rule.slack);
    if (rule.whole_prompt) next_ = std::max(next_, prompt);
  }
  ~PlainLayers() { runner_->hooks().remove(observer_); }
  std::vector<float> step(TokenId token) {
    runner_->start();
    for (size_t layer = 0; layer < tables_.size(); ++layer) {
      tables_[layer].push_back(*runner_->kv().allocate());
      positions_[layer].push_back(computed_);
      observer_.sums[layer].push_back(0);
      const int64_t slot = std::ssize(tables_[layer]) - 1;
      if (layer == 0)
        runner_->begin(tables_[0], slot);
      else
        runner_->begin_group(static_cast<int64_t>(layer), tables_[layer], slot);
    }
    runner_->add(token, computed_, true);
    observer_.active = computed_ >= next_ - queries_;
    runner_->forward();
    if (++computed_ == next_) evict();
    return {runner_->logits(), runner_->logits(1)};
  }
  const std::vector<std::vector<int64_t>>& positions() const { return positions_; }

 private:
  double worth(size_t layer, int64_t slot) const {
    const std::vector<double>& own = observer_.sums[layer];
    if (rule_.evictor->cascades()) return worth_.at(positions_[layer][static_cast<size_t>(slot)]);
    const int64_t old = std::ssize(own) - newest_;
    double most = -1e30;
    for (int64_t i = std::max<int64_t>(0, slot - reach_); i < std::min(old, slot + reach_ + 1); ++i)
      most = std::max(most, own[static_cast<size_t>(i)]);
    return most;
  }
  void evict() {
    for (size_t layer = 0; layer < tables_.size(); ++layer)
      for (size_t slot = 0; slot < tables_[layer].size(); ++slot)
        worth_[positions_[layer][slot]] += observer_.sums[layer][slot];
    std::vector<int64_t> left = positions_.front();
    for (size_t layer = 0; layer < tables_.size(); ++layer) {
      std::vector<int64_t> order;
      for (int64_t slot = 0; slot < std::ssize(tables_[layer]); ++slot)
        if (!rule_.evictor->cascades() ||
            std::ranges::find(left, positions_[layer][static_cast<size_t>(slot)]) != left.end())
          order.push_back(slot);
      const int64_t safe = order[order.size() - static_cast<size_t>(std::min(newest_, std::ssize(order)))];
      const auto value = [&](int64_t slot) { return slot >= safe ? 1e30 : worth(layer, slot); };
      std::ranges::sort(order, [&](int64_t a, int64_t b) { return std::pair(value(a), a) > std::pair(value(b), b); });
      const int64_t budget = rule_.evictor->budget_of(static_cast<int64_t>(layer), layers_);
      if (std::ssize(order) > budget) order.resize(static_cast<size_t>(budget));
      std::ranges::sort(order);
      std::vector<BlockId> table;
      std::vector<int64_t> positions;
      std::vector<double> sums;
      for (const int64_t slot : order) {
        table.push_back(tables_[layer][static_cast<size_t>(slot)]);
        sums.push_back(observer_.norms ? observer_.sums[layer][static_cast<size_t>(slot)] : 0);
        positions.push_back(positions_[layer][static_cast<size_t>(slot)]);
      }
      for (const BlockId block : tables_[layer])
        if (std::ranges::find(table, block) == table.end()) runner_->kv().release(block);
      tables_[layer] = table;
      positions_[layer] = left = positions;
      observer_.sums[layer] = sums;
    }
    next_ += rule_.slack;
  }

  const EvictionRule& rule_;
  int64_t queries_, newest_, reach_, layers_ = 0, computed_ = 0, next_ = 0;
  std::unique_ptr<ModelRunner> runner_;
  PlainLayerMass observer_;
  std::vector<std::vector<BlockId>> tables_;
  std::vector<std::vector<int64_t>> positions_;
  std::map<int64_t, double> worth_;
};

}  // namespace millrace::testing
