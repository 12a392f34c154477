// Budgets of layers: the division against all divisions, and what is measured against attention by its definition.
#include "evaluate/budget_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "base/philox.h"
#include "evaluate/scorer.h"
#include "test_paths.h"

namespace millrace {
namespace {

double least_kept(std::span<const LayerPersistence> layers, const std::vector<int64_t>& older) {
  double least = 1;
  for (size_t i = 0; i < layers.size(); ++i) least = std::min(least, layers[i].kept_share(older[i]));
  return least;
}

// The best of all divisions, by trying them.
double best_least_kept(std::span<const LayerPersistence> layers, int64_t total) {
  std::vector<int64_t> older(layers.size());
  double best = 0;
  const std::function<void(size_t, int64_t)> choose = [&](size_t layer, int64_t left) {
    if (layer == layers.size()) {
      best = std::max(best, least_kept(layers, older));
      return;
    }
    for (older[layer] = 0; older[layer] <= std::min(left, std::ssize(layers[layer].kept) - 1); ++older[layer])
      choose(layer + 1, left - older[layer]);
  };
  choose(0, total);
  return best;
}

TEST(BudgetSearch, NoOtherDivisionKeepsMoreInThePoorestLayer) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 100; ++round) {
    std::vector<LayerPersistence> layers(1 + random() % 3);
    for (LayerPersistence& layer : layers) {
      layer.kept = {static_cast<int64_t>(random() % 5)};
      for (int i = 0; i < 8; ++i) layer.kept.push_back(layer.kept.back() + static_cast<int64_t>(random() % 6 / 2));
    }
    for (const int64_t average : {0, 1, 3, 7, 8, 20}) {
      const auto older = divide_budget(layers, average);
      int64_t sum = 0;
      for (const int64_t one : older) sum += one;
      EXPECT_EQ(sum, std::min<int64_t>(8, average) * std::ssize(layers));
      EXPECT_DOUBLE_EQ(least_kept(layers, older), best_least_kept(layers, sum)) << round << ", " << average;
    }
  }
}

TEST(BudgetSearch, LayersThatPersistLessGetMore) {
  LayerPersistence steady{.kept = {0, 60, 80, 90, 100, 100, 100}}, changing{.kept = {0, 10, 30, 50, 70, 85, 100}};
  EXPECT_EQ(divide_budget(std::vector{steady, changing}, 3), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(divide_budget(std::vector{changing, steady, changing}, 3), (std::vector<int64_t>{4, 1, 4}));
  FoundBudgets found{.older = {7, 0, 12}};
  EXPECT_EQ(found.text(), "7.1.12");
}

// One window, whose attention is written out from its queries and keys.
class PlainPersistence final : public ForwardObserver {
 public:
  std::vector<LayerPersistence> layers;
  bool by_head = false;
  int64_t half = 0, recent = 0, history = 0;
  void queries(const AttentionInput& in) override {
    const int64_t heads = in.layer.kv_heads, layer = in.layer.layer;
    if (!by_head) return measure(in, 0, heads, layers[static_cast<size_t>(layer)]);
    for (int64_t head = 0; head < heads; ++head)
      measure(in, head, head + 1, layers[static_cast<size_t>(layer * heads + head)]);
  }

 private:
  void measure(const AttentionInput& in, int64_t first_head, int64_t end_head, LayerPersistence& out) const {
    const AttentionLayer& layer = in.layer;
    const int64_t tokens = in.batch.size(), group = layer.heads / layer.kv_heads, dim = layer.head_dim;
    out.kept.resize(static_cast<size_t>(half - recent + 1));
    std::vector<int64_t> before(static_cast<size_t>(half)), later(before);
    for (int64_t head = first_head; head < end_head; ++head) {
      for (int64_t key = 0; key < half; ++key) {
        bool first = false, second = false;
        for (int64_t query = std::max(key, half - history); query < tokens; ++query)
          for (int64_t g = 0; g < group; ++g) {
            const float* q = in.q + query * layer.heads * dim + (head * group + g) * dim;
            double all = 0, own = 0;
            for (int64_t k = 0; k <= query; ++k) {
              const double weight = std::exp(score(in, head, q, k));
              all += weight;
              if (k == key) own = weight;
            }
            if (own / all < 1 / static_cast<double>(query + 1)) continue;
            (query < half ? first : second) = true;
            ++(query < half ? before : later)[static_cast<size_t>(key)];
          }
        out.important += second;
        out.persistent += first && second;
      }
    }
    for (int64_t older = 0; older <= half - recent; ++older) {
      for (int64_t key = 0; key < half; ++key) {
        int64_t better = 0;  // of the older ones
        for (int64_t other = 0; other < half - recent; ++other)
          better +=
              std::pair(before[static_cast<size_t>(other)], other) > std::pair(before[static_cast<size_t>(key)], key);
        if (key >= half - recent || better < older)
          out.kept[static_cast<size_t>(older)] += later[static_cast<size_t>(key)];
      }
    }
  }

  static double score(const AttentionInput& in, int64_t head, const float* q, int64_t slot) {
    const int64_t block = in.kv.layout().block_tokens;
    const BatchSpan& span = in.batch.spans.front();
    const auto id = in.batch.block_tables[static_cast<size_t>(span.table + slot / block)];
    const auto* row =
        reinterpret_cast<const float*>(in.kv.keys(in.layer.layer, id, head)) + slot % block * in.layer.head_dim;
    double dot = 0;
    for (int64_t d = 0; d < in.layer.head_dim; ++d) dot += static_cast<double>(q[d]) * static_cast<double>(row[d]);
    return dot;
  }
};

std::shared_ptr<const LanguageModel> golden(const std::string& name) {
  const auto model = LanguageModel::load(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/" + name + "/model.gguf",
                                         {.threads = 1, .context = 128});
  EXPECT_TRUE(model.ok());
  return model.ok() ? *model : nullptr;
}

std::vector<TokenId> drawn_tokens(const LanguageModel& model, int64_t count) {
  std::vector<TokenId> tokens;
  for (uint64_t i = 0; i < static_cast<uint64_t>(count); ++i)
    tokens.push_back(static_cast<TokenId>(philox_uniform(1, 2, i) * static_cast<double>(model.info().vocab)));
  return tokens;
}

TEST(BudgetSearch, MeasuresImportanceByItsDefinition) {
  const auto model = golden("llama3");
  const std::vector<TokenId> tokens = drawn_tokens(*model, 48);
  for (const auto& [history, heads] : {std::pair(int64_t{7}, false), {400, false}, {7, true}, {400, true}}) {
    const BudgetSearchOptions options{
        .threads = 1, .context = 48, .keep = 0.5, .recent = 3, .history = history, .kv_format = "f32", .heads = heads};
    const auto found = search_budgets(model, tokens, options);
    ASSERT_TRUE(found.ok()) << found.error().message;
    const auto scorer = Scorer::create(model, {.threads = 1, .context = 48, .batch_tokens = 47, .kv_format = "f32"});
    ASSERT_TRUE(scorer.ok());
    PlainPersistence plain;
    ASSERT_EQ(std::ssize(found->layers), std::ssize(model->parts().model->spec().layers) *
                                             (heads ? model->parts().model->spec().layers.front().kv_heads : 1));
    plain.layers.resize(found->layers.size());
    plain.by_head = heads;
    plain.half = 24;
    plain.recent = 3;
    plain.history = history;
    (*scorer)->runner().hooks().add(plain);
    const std::vector<ScoreWindow> window = {{0, 48, 48}};
    ASSERT_TRUE((*scorer)->run(tokens, window, -1, [](std::span<const ScoredRow>) { return Result<void>(); }).ok());
    (*scorer)->runner().hooks().remove(plain);
    for (size_t i = 0; i < plain.layers.size(); ++i) {
      EXPECT_EQ(found->layers[i].important, plain.layers[i].important) << i;
      EXPECT_EQ(found->layers[i].persistent, plain.layers[i].persistent) << i;
      EXPECT_EQ(found->layers[i].kept, plain.layers[i].kept) << i;
      EXPECT_GT(found->layers[i].important, 0);
      EXPECT_LT(found->layers[i].persistent, found->layers[i].important + (history > 7));
    }
    EXPECT_EQ(found->average, 9);
    EXPECT_EQ(found->older, divide_budget(plain.layers, 9));
  }
}

TEST(BudgetSearch, SeesEveryWindowOnceOnAnyThreads) {
  const auto model = golden("llama3");
  const std::vector<TokenId> tokens = drawn_tokens(*model, 250);
  BudgetSearchOptions options{.threads = 1, .context = 64, .keep = 0.5, .recent = 2};
  const auto all = search_budgets(model, tokens, options);
  options.threads = 3;
  const auto same = search_budgets(model, tokens, options);
  ASSERT_TRUE(all.ok() && same.ok());
  std::vector<std::vector<int64_t>> sums(all->layers.size(), std::vector<int64_t>(31));
  for (int64_t window = 0; window < 3; ++window) {
    const auto one = search_budgets(model, std::span(tokens).subspan(static_cast<size_t>(64 * window), 64), options);
    ASSERT_TRUE(one.ok());
    for (size_t i = 0; i < sums.size(); ++i)
      for (size_t k = 0; k < sums[i].size(); ++k) sums[i][k] += one->layers[i].kept[k];
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    EXPECT_EQ(all->layers[i].kept, sums[i]);
    EXPECT_EQ(same->layers[i].kept, sums[i]);
  }
}

TEST(BudgetSearch, ErrorsAreExact) {
  const auto model = golden("llama3");
  const auto refusal = [&](const std::shared_ptr<const LanguageModel>& of, const BudgetSearchOptions& options) {
    const auto found = search_budgets(of, std::vector<TokenId>(100, 5), options);
    return found.ok() ? "" : found.error().message;
  };
  EXPECT_EQ(refusal(model, {.threads = 1, .context = 128}),
            "text: has 100 tokens, fewer than a window of 128; lower the context or give a longer text");
  EXPECT_EQ(refusal(model, {.threads = 1, .context = 64, .keep = 0.3, .recent = 9}),
            "keep: 0.3 of 32 tokens are no more than the newest 9; raise it or the context, or lower recent");
  EXPECT_EQ(refusal(golden("gemma3"), {.threads = 1, .context = 64}),
            "budget-search: some layers of this model do not see every key, so that layers have one budget");
}

}  // namespace
}  // namespace millrace
