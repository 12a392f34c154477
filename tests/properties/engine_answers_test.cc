// Several answers of a request, and several requests with one beginning: what is chosen among answers is what each of them
// is alone, and a prompt that many share is computed once.
#include "properties/stream_bits.h"

namespace millrace {
namespace {

using namespace testing;

class EngineAnswers : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = load_for(golden_model("smollm3"), detect_isa());
    ASSERT_TRUE(model_);
    vocab_ = model_->info().vocab;
  }

  struct One {
    std::vector<TokenId> tokens;
    double mean = 0;
  };
  // The answer that the request gives alone with another seed, and its tokens' mean log-probability.
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

TEST_F(EngineAnswers, BestOfReturnsThoseWithTheHighestMeanLogprob) {
  Request r = make_request(3, 20, 9, vocab_);
  r.n = 2;
  r.best_of = 5;
  r.sampling.logprobs = -1;
  std::vector<One> expected;
  for (int64_t answer = 0; answer < 5; ++answer) expected.push_back(alone(r, answer));
  std::ranges::stable_sort(expected, [](const One& a, const One& b) { return a.mean > b.mean; });
  for (int64_t kv_tokens : {64, 4096}) {  // in little memory they come one after the other, or give way to each other
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
        EXPECT_EQ(event.logprob.logprob, 0);  // nobody asked
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

}  // namespace
}  // namespace millrace
