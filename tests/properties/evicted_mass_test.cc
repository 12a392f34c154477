// What evictors know of documents that were computed apart: the attention that the context lets the tokens behind them
// pay, from the first of these on, and when they choose.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "models/eviction_observer.h"
#include "properties/document_requests.h"

namespace millrace {
namespace {

using namespace testing;

// Attention to documents by its definition: keys are rows of f32 in blocks of one token.
struct PlainDocuments final : ForwardObserver {
  std::vector<KeySegment> segments;
  DocumentWeights weights;
  std::vector<double> sums;  // [slots]
  int64_t hidden = 0;        // keys of documents that were not chosen

  void queries(const AttentionInput& in) override {
    const BatchSpan& span = in.batch.spans.front();
    for (int64_t i = 0; i < span.count; ++i)
      for (int64_t head = 0; head < in.layer.heads; ++head) add(in, span.first_slot + i, span.begin + i, head);
  }
  void add(const AttentionInput& in, int64_t own, int64_t row, int64_t head) {
    const AttentionLayer& layer = in.layer;
    const float* q = in.q + row * layer.q_width() + head * layer.head_dim;
    std::vector<double> each(static_cast<size_t>(own + 1));
    std::map<int32_t, double> documents;
    const auto segment_of = [&](int64_t slot) {
      const auto found =
          std::ranges::find_if(segments, [&](const KeySegment& s) { return slot >= s.begin && slot < s.end; });
      return found == segments.end() ? KeySegment{} : *found;  // of no end: is not seen
    };
    for (int64_t slot = 0; slot <= own; ++slot) {
      if (layer.window > 0 && slot <= own - layer.window) continue;
      const auto* key = reinterpret_cast<const float*>(in.kv.keys(
          layer.layer, in.batch.block_tables[static_cast<size_t>(slot)], head / (layer.heads / layer.kv_heads)));
      double dot = 0;
      for (int64_t d = 0; d < layer.head_dim; ++d) dot += double{q[d]} * double{key[d]};
      const KeySegment segment = segment_of(slot);
      if (segment.end == 0) continue;
      dot *= segment.scale;
      if (layer.softcap > 0) dot = layer.softcap * std::tanh(dot / layer.softcap);
      each[static_cast<size_t>(slot)] = std::exp(dot);
      if (segment.document > 0) documents[segment.document] += each[static_cast<size_t>(slot)];
    }
    std::vector<std::pair<double, int32_t>> order;
    for (const auto& [document, sum] : documents) order.emplace_back(-sum, document);
    std::ranges::sort(order);
    const auto most =
        weights.most > 0 ? std::min<size_t>(order.size(), static_cast<size_t>(weights.most)) : order.size();
    double all = 0;
    for (size_t i = 0; i < most; ++i) all -= order[i].first;
    double total = 0;
    for (int64_t slot = 0; slot <= own; ++slot) {
      double& one = each[static_cast<size_t>(slot)];
      const int32_t document = segment_of(slot).document;
      const bool chosen = std::any_of(order.begin(), order.begin() + static_cast<ptrdiff_t>(most),
                                      [&](const auto& entry) { return entry.second == document; });
      if (document > 0 && !chosen && one > 0) one = 0, ++hidden;
      if (document > 0 && one > 0) one *= std::pow(all, weights.power - 1);
      total += one;
    }
    for (size_t slot = 0; slot < each.size(); ++slot) sums[slot] += each[slot] / total;
  }
};

// What evictors observe is what the context makes of it, the temperature and power of APE and chosen documents.
TEST(EvictedDocumentsMass, IsTheAttentionThatIsPaid) {
  struct View {
    std::vector<KeySegment> segments;
    DocumentWeights weights;
  };
  const std::vector<View> views = {
      {{{0, 1}, {1, 40, 1.25f, 0, 1}, {40, 1000}}, {0.6f, 0}},
      {{{0, 1}, {1, 13, 1, 0, 1}, {13, 20, 1, 0, 2}, {20, 20, 1, 0, 3}, {20, 40, 1, 0, 4}, {40, 1000}}, {1, 1}},
      {{{0, 1}, {1, 13, 0.5f, 0, 1}, {13, 18, 0.5f, 0, 2}, {20, 38, 0.5f, 0, 3}, {40, 1000}}, {0.7f, 2}}};  // not all
  for (const char* name : {"llama3", "gemma2"}) {
    auto loaded = TestRunner::load(golden_model(name), {.context = 64, .kv_format = "f32", .block_tokens = 1});
    ASSERT_TRUE(loaded.ok());
    TestRunner& runner = **loaded;
    const auto prompt = make_request(3, 44, 1, runner.model().spec().vocab).prompt;
    auto rule = std::make_shared<EvictionRule>(**make_eviction_rule("h2o:budget=60,scope=stream"));
    rule->joined = 40;
    for (const View& view : views) {
      runner.step(std::span(prompt).first(40), 0);
      PlainDocuments plain;
      plain.segments = view.segments;
      plain.weights = view.weights;
      plain.sums.assign(44, 0);
      EvictionObserver observer(runner.runner());
      TokenEviction eviction(rule, 44, 64, runner.kv().layout().heads());
      runner.runner().hooks().add(plain);
      runner.runner().start();
      observer.start();
      runner.runner().begin(runner.blocks(), 40);
      for (int64_t i = 40; i < 44; ++i) runner.runner().add(prompt[static_cast<size_t>(i)], i, true);
      runner.runner().see({.segments = view.segments, .documents = view.weights});
      observer.add(eviction);
      runner.runner().forward();
      runner.runner().hooks().remove(plain);
      const auto mass = eviction.mass(44);
      for (size_t slot = 0; slot < 44; ++slot)
        EXPECT_NEAR(static_cast<double>(mass[slot]) * kMassUnit, plain.sums[slot], 2e-4) << name << " " << slot;
      EXPECT_EQ(plain.hidden > 0, view.weights.most > 0) << "or choosing proves nothing";
    }
  }
}

// Tokens of the prompt's documents have been observed as long as each other.
TEST(EvictedDocumentsMass, CountsFromTheQuestionOn) {
  auto rule = std::make_shared<EvictionRule>(**make_eviction_rule("h2o:budget=2,recent=0.5,slack=6,scope=stream"));
  const auto kept = [&](int64_t joined) {
    rule->joined = joined;
    TokenEviction eviction(rule, 12, 100);
    EXPECT_EQ(eviction.first_observed(), joined);
    EXPECT_EQ(eviction.next(), 12);
    const auto mass = eviction.mass(12);
    mass[0] = 12, mass[7] = 11;  // by means of 12 and 5 queries the second one, of 2 queries each the first
    eviction.decide();
    return eviction.positions().front();
  };
  EXPECT_EQ(kept(0), 7);
  EXPECT_EQ(kept(10), 0);
}

// A budget that holds for prompts begins behind the documents, when as many tokens as the slack have seen them.
TEST(EvictedDocumentsSchedule, DecidesWhenDocumentsHaveBeenSeen) {
  auto rule = std::make_shared<EvictionRule>(**make_eviction_rule("window:budget=8,slack=4,prompt=evicted"));
  EXPECT_EQ(TokenEviction(rule, 60, 100).next(), 12);
  rule->joined = 50;
  for (const auto& [prompt, first] : {std::pair(60, 54), {52, 52}}) {
    TokenEviction eviction(rule, prompt, 100);
    EXPECT_EQ(eviction.next(), first);
    EXPECT_EQ(eviction.most_stored(), first);
    EXPECT_EQ(kv_demand(rule.get(), prompt, 100), first);
    eviction.decide();
    EXPECT_EQ(eviction.next(), first + 4);
    EXPECT_EQ(eviction.most_stored(), 12);
    EXPECT_EQ(stored_tokens(rule.get(), prompt, first + 1), 9);
  }
}

}  // namespace
}  // namespace millrace
