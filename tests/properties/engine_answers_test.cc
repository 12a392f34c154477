// Several answers to one request, and several requests with a common prefix: best_of chooses among answers that each
// equal the one computed alone, and a shared prompt is computed once.
#include "properties/stream_bits.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

class EngineAnswers : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = load_for(golden_model("smollm3"), *select_isa());
    ASSERT_TRUE(model_);
    vocab_ = model_->info().vocab;
  }

  struct One {
    std::vector<TokenId> tokens;
    double mean = 0;
  };
  // The answer to the request alone with another seed, and its tokens' mean log-probability.
  One alone(Request request, int64_t answer) {
    request.sampling.seed += static_cast<uint64_t>(answer);
    request.n = 1;
    request.best_of = 0;
    request.sampling.logprobs = 0;
    auto core = make_core(model_, options());
    EXPECT_TRUE(core->add(1, request).ok());
    std::vector<TokenEvent> events;
    while (!core->idle()) core->step(events);
    One out;
    double sum = 0;
    for (const auto& event : events) {
      out.tokens.push_back(event.token);
      sum += static_cast<double>(event.logprob.logprob);
    }
    out.mean = sum / static_cast<double>(events.size());
    return out;
  }

  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0;
};

TEST_F(EngineAnswers, BestOfReturnsTheAnswersWithTheHighestMeanLogprob) {
  Request r = make_request(3, 20, 9, vocab_);
  r.n = 2;
  r.best_of = 5;
  r.sampling.logprobs = -1;
  std::vector<One> expected;
  for (int64_t answer = 0; answer < 5; ++answer) expected.push_back(alone(r, answer));
  std::ranges::stable_sort(expected, [](const One& a, const One& b) { return a.mean > b.mean; });
  for (int64_t kv_tokens : {64, 4096}) {  // in little memory they run one by one, or preempt each other
    EngineOptions o = options(1, 13, 4);
    o.kv_tokens = kv_tokens;
    o.policy = "fcfs:reserve=prompt";
    auto core = make_core(model_, o);
    ASSERT_TRUE(core->add(1, r).ok());
    ASSERT_TRUE(core->add(2, make_request(9, 12, 30, vocab_)).ok());
    std::map<int64_t, std::vector<TokenId>> answers;
    std::map<int64_t, double> scores;
    std::vector<TokenEvent> events;
    int64_t ends = 0;
    while (!core->idle()) {
      events.clear();
      core->step(events);
      EXPECT_TRUE(core->check_blocks().ok());
      for (const auto& event : events) {
        if (event.request != 1) continue;
        answers[event.answer].push_back(event.token);
        EXPECT_EQ(event.logprob.logprob, 0);  // not requested
        if (event.finish != FinishReason::none) scores[event.answer] = event.score;
        ends += event.last;
      }
    }
    ASSERT_EQ(answers.size(), 2u);
    EXPECT_EQ(ends, 1);
    for (int64_t answer : {0, 1}) {
      EXPECT_EQ(answers[answer], expected[static_cast<size_t>(answer)].tokens) << answer;
      EXPECT_EQ(scores[answer], expected[static_cast<size_t>(answer)].mean) << answer;
    }
  }
}

TEST_F(EngineAnswers, BestOfIsAtLeastN) {
  auto core = make_core(model_, options());
  Request r = make_request(3, 20, 9, vocab_);
  r.n = 3;
  r.best_of = 2;
  EXPECT_FALSE(core->check(r).ok());
  r.best_of = 3;
  EXPECT_TRUE(core->check(r).ok());
}

// 64 requests that begin with the same 96 tokens of a long prompt, all at once: the prefix is computed once under
// every policy.
TEST_F(EngineAnswers, RequestsThatArriveTogetherComputeTheirCommonPrefixOnce) {
  constexpr int64_t kRequests = 64, kPrefix = 96, kOwn = 7;
  const std::vector<TokenId> prefix = make_request(5, kPrefix, 1, vocab_).prompt;
  std::vector<Request> requests;
  for (int64_t i = 0; i < kRequests; ++i) {
    Request r = make_request(100 + i, kOwn, 3, vocab_);
    r.prompt.insert(r.prompt.begin(), prefix.begin(), prefix.end());
    requests.push_back(r);
  }
  for (const char* policy : {"fcfs", "stall_free", "prefill_first", "skip_join_mlfq", "vtc"}) {
    EngineOptions o = options(1, 24, 8);
    o.max_streams = 16;
    o.policy = policy;
    auto core = make_core(model_, o);
    for (int64_t i = 0; i < kRequests; ++i)
      ASSERT_TRUE(core->add(static_cast<RequestId>(i + 1), requests[static_cast<size_t>(i)]).ok());
    auto shown = run_all(*core, vocab_);
    EXPECT_EQ(core->stats().prompt_tokens, kPrefix + kRequests * kOwn) << policy;
    EXPECT_EQ(core->stats().cached_tokens, (kRequests - 1) * kPrefix) << policy;
    EXPECT_EQ(core->stats().prefix.hit_tokens, (kRequests - 1) * kPrefix) << policy;
    for (int64_t i = 0; i < kRequests; i += 21) {
      auto alone = make_core(model_, options());
      ASSERT_TRUE(alone->add(1, requests[static_cast<size_t>(i)]).ok());
      EXPECT_TRUE(run_all(*alone, vocab_)[1].same_bits(shown[static_cast<RequestId>(i + 1)])) << policy << " " << i;
    }
  }
}

TEST_F(EngineAnswers, StreamsWaitingForAPrefixContinueWhenItsOwnerLeaves) {
  EngineOptions o = options(1, 8, 8);
  o.kv_tier = memory_tier(200);
  for (bool cancel : {true, false}) {
    auto core = make_core(model_, o);
    Request r = make_request(4, 80, 4, vocab_);
    for (RequestId id : {1, 2, 3}) ASSERT_TRUE(core->add(id, r).ok());
    std::vector<TokenEvent> events;
    for (int i = 0; i < 3; ++i) core->step(events);
    EXPECT_EQ(core->stats().prompt_tokens, 24);
    if (cancel) {
      core->cancel(1);
    } else {
      StepPlan plan;
      plan.preempted = {{1, true}};
      ASSERT_TRUE(core->replay(plan, events).ok());
    }
    auto shown = run_all(*core, vocab_);
    EXPECT_EQ(shown[2].tokens.size(), 4u);
    EXPECT_TRUE(shown[2].same_bits(shown[3]));
    const int64_t rest = 80 - 24, last_block = 8;
    EXPECT_EQ(core->stats().prompt_tokens, 24 + rest + last_block + (cancel ? 0 : rest))
        << cancel;  // a swapped stream continues by itself
  }
}

TEST_F(EngineAnswers, TenantsShareOnlyByChoice) {
  auto core = make_core(model_, options(1, 512, 8));
  const Request plain = make_request(4, 40, 2, vocab_);
  RequestId next = 1;
  auto cached = [&](const std::string& tenant, const std::string& group) {
    Request r = plain;
    r.tenant = tenant;
    r.prefix_group = group;
    EXPECT_TRUE(core->add(next, r).ok());
    return run_all(*core, vocab_)[next++].cached;
  };
  EXPECT_EQ(cached("a", ""), 0);
  EXPECT_EQ(cached("a", ""), 32);
  EXPECT_EQ(cached("b", ""), 0);
  EXPECT_EQ(cached("", ""), 0);
  EXPECT_EQ(cached("", "a"), 0);  // a group with a tenant's name is not the tenant
  EXPECT_EQ(cached("a", "team"), 0);
  EXPECT_EQ(cached("b", "team"), 32);
  EXPECT_EQ(cached("b", ""), 32);
}

TEST_F(EngineAnswers, KeptPrefixesOutlastLaterOnes) {
  ManualClock clock;
  EngineOptions o = options(1, 512, 8);
  o.kv_tokens = 96;
  auto core = EngineCore::create(model_, o, &clock);
  ASSERT_TRUE(core.ok());
  RequestId next = 1;
  auto cached = [&](int64_t prompt, double keep) {
    Request r = make_request(prompt, 33, 1, vocab_);
    r.keep_seconds = keep;
    EXPECT_TRUE((*core)->add(next, r).ok());
    clock.advance_ns(1'000'000'000);
    return run_all(**core, vocab_)[next++].cached;
  };
  EXPECT_EQ(cached(1, 1000), 0);
  for (int64_t other : {2, 3, 4}) EXPECT_EQ(cached(other, 0), 0);
  EXPECT_EQ(cached(1, 0), 32);  // would otherwise have been evicted long ago
  clock.advance_ns(2'000'000'000'000);
  for (int64_t other : {2, 3, 4}) cached(other, 0);
  EXPECT_EQ(cached(1, 0), 0);
}

// Observing changes no bit, and the observed importance decides which blocks are retained.
TEST_F(EngineAnswers, ImportanceIsObservedDuringTheStep) {
  EngineOptions plain = options(1, 24, 8), observing = plain;
  observing.prefix_evict = "importance";
  const Request r = make_request(7, 70, 12, vocab_);
  std::map<RequestId, Shown> shown[2];
  for (int i : {0, 1}) {
    auto core = make_core(model_, i == 0 ? plain : observing);
    ASSERT_TRUE(core->add(1, r).ok());
    shown[i] = run_all(*core, vocab_);
  }
  EXPECT_TRUE(shown[0][1].same_bits(shown[1][1]));
}

}  // namespace
}  // namespace millrace
