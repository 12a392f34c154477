// Evictors on models with windows, for streams long enough that both happen: tokens of the layers that see all are
// dropped, and blocks behind the windows are given back. The bits are those of the request alone with all of the
// window's blocks kept; a stream holds its budget in one group and its window in the other, whatever else runs.
#include "properties/draft_runs.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

struct WindowEvictorCase {
  const char* model;
  const char* evictor;
};

class WindowEvictors : public ::testing::TestWithParam<WindowEvictorCase> {
 protected:
  static constexpr int64_t kContext = 700, kWindow = 8, kBlock = 4, kBatch = 24;

  void SetUp() override {
    auto model = LanguageModel::load(golden_model(GetParam().model), {.threads = 1, .context = kContext});
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = *model;
    vocab_ = model_->info().vocab;
  }
  EngineOptions evicting(int threads = 1, int64_t batch = kBatch) const {
    EngineOptions o = options(threads, batch, kBlock);
    o.context = kContext;
    o.kv_tokens = 8192;
    o.evictor = GetParam().evictor;
    return o;
  }
  EngineOptions keeping() const {
    EngineOptions o = evicting(1, 200);
    o.keep_window_keys = true;
    return o;
  }
  std::map<RequestId, Shown> run(const EngineOptions& o, const std::vector<Request>& requests) {
    auto core = make_core(model_, o);
    EXPECT_EQ(core->kv().groups(), 2);
    for (size_t i = 0; i < requests.size(); ++i) EXPECT_TRUE(core->add(i + 1, requests[i]).ok());
    auto shown = run_all(*core, vocab_);
    stats_ = core->stats();
    return shown;
  }

  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0;
  EngineStats stats_;
};

TEST_P(WindowEvictors, AStreamHoldsItsBudgetAndItsWindow) {
  const Request r = make_request(1, 300, 300, vocab_);
  const Shown expected = run(keeping(), {r}).at(1);
  auto core = make_core(model_, evicting());
  const auto rule = make_eviction_rule(GetParam().evictor);
  ASSERT_TRUE(core->add(1, r).ok());
  const KvPool& pool = core->kv();
  const auto used = [&](int64_t group) { return pool.group(group).total_blocks() - pool.group(group).free_blocks(); };
  int64_t of_all = 0, of_window = 0;
  std::vector<TokenEvent> events;
  std::vector<TokenId> tokens;
  while (!core->idle()) {
    core->step(events);
    of_all = std::max(of_all, used(0));
    of_window = std::max(of_window, used(1));
    ASSERT_TRUE(core->check_blocks().ok());
  }
  for (const TokenEvent& event : events)
    if (event.token >= 0) tokens.push_back(event.token);
  EXPECT_EQ(tokens, expected.tokens);
  EXPECT_LE(of_all, pool.blocks_for(kv_demand(rule->get(), 300, 600)));
  EXPECT_LE(of_window, pool.blocks_for(kWindow - 1 + kBatch + kBlock));
  EXPECT_GT(core->stats().evicted_tokens, 200);
  EXPECT_EQ(used(0) + used(1), 0);
}

// Requests of all lengths, some with evictors of their own or none, in memory for a few of them.
TEST_P(WindowEvictors, LoadsInLittleMemoryKeepTheBits) {
  int64_t preempted = 0;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const auto draw = [&](uint64_t what, uint64_t i) { return philox_uniform(seed, what, i); };
    std::vector<Request> requests;
    for (uint64_t i = 0; i < 7; ++i) {
      Request r = make_request(static_cast<int64_t>(1 + i % 3), 1 + static_cast<int64_t>(draw(1, i) * 180),
                               1 + static_cast<int64_t>(draw(2, i) * 120), vocab_);
      if (i == 2) {  // grows until the others have to leave
        r = make_request(static_cast<int64_t>(seed), 60, 200, vocab_);
        r.evictor = "none";
      }
      if (i == 4) r.evictor = "streamingllm:sinks=2,window=9,slack=3,prompt=evicted";
      requests.push_back(std::move(r));
    }
    const auto expected = run(keeping(), requests);
    EngineOptions o = evicting(1 + static_cast<int>(seed % 2), 9 + static_cast<int64_t>(draw(3, 0) * 20));
    o.kv_tokens = 264;
    o.max_streams = 3;
    o.resident_streams = 5;
    o.policy = "fcfs:reserve=prompt";
    o.kv_tier = memory_tier(seed % 2 ? 400 : 0);
    o.prefix_cache = seed > 2;
    if (seed == 4) o.drafter = "ngram:min=1,k=4";
    if (seed == 3) o.drafter = "draft:k=3,model=" + golden_model("llama3");  // its layers are in the first group
    auto core = make_core(model_, o);
    for (size_t i = 0; i < requests.size(); ++i) ASSERT_TRUE(core->add(i + 1, requests[i]).ok());
    std::map<RequestId, std::vector<TokenId>> tokens;
    std::vector<TokenEvent> events;
    while (!core->idle()) {
      core->step(events);
      ASSERT_TRUE(core->check_blocks().ok());
    }
    for (const TokenEvent& event : events)
      if (event.token >= 0) tokens[event.request].push_back(event.token);
    for (const auto& [id, shown] : expected) EXPECT_EQ(tokens[id], shown.tokens) << seed << " " << id;
    preempted += core->stats().preemptions;
  }
  EXPECT_GT(preempted, 0);
}

// Streams that keep everything share prefixes beside those that do not, whose slots differ in the same batch.
TEST_P(WindowEvictors, StreamsThatKeepAllShareAsBefore) {
  Request plain = make_request(2, 250, 40, vocab_), evicted = plain;
  plain.evictor = "none";
  std::vector<Request> requests = {plain, evicted, plain, evicted};
  EngineOptions o = evicting(2);
  o.prefix_cache = true;
  const auto shown = run(o, requests);
  const Shown alone = run(keeping(), {plain}).at(1), dropped = run(keeping(), {evicted}).at(1);
  EXPECT_TRUE(shown.at(1).same_bits(alone));
  EXPECT_TRUE(shown.at(2).same_bits(dropped));
  EXPECT_TRUE(shown.at(3).same_bits(alone));
  EXPECT_TRUE(shown.at(4).same_bits(dropped));
  EXPECT_FALSE(alone.same_bits(dropped));
  EXPECT_EQ(shown.at(2).cached + shown.at(4).cached, 0);
  EXPECT_GT(shown.at(3).cached, 200);
}

// The layers with a window may be encoded: tokens are dropped in the others.
TEST_P(WindowEvictors, BesideEncodedWindows) {
  const std::vector<Request> requests = {make_request(1, 120, 60, vocab_), make_request(2, 40, 90, vocab_)};
  EngineOptions o = evicting();
  o.kv_format = "f16:window=kivi:bits=2";
  const auto shown = run(o, requests);
  EXPECT_FALSE(shown.at(1).same_bits(run(keeping(), requests).at(1)));
  for (size_t i = 0; i < requests.size(); ++i) {
    EngineOptions other = evicting(2, 50);
    other.kv_format = o.kv_format;
    other.keep_window_keys = i == 0;
    EXPECT_TRUE(run(other, {requests[i]}).at(1).same_bits(shown.at(i + 1))) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, WindowEvictors,
                         ::testing::Values(WindowEvictorCase{"gemma2",
                                                             "streamingllm:sinks=3,window=37,slack=6,prompt=evicted"},
                                           WindowEvictorCase{"gemma3", "h2o:budget=40,slack=7,prompt=evicted"}),
                         [](const auto& test) { return std::string(test.param.model); });

}  // namespace
}  // namespace millrace
