// Each predictor's estimate, called directly: which answers it uses, and from which number of them on.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/philox.h"
#include "schedule/predictor.h"

namespace millrace {
namespace {

std::unique_ptr<Predictor> predictor(const std::string& text) {
  auto made = make_predictor(text);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return made.ok() ? std::move(*made) : nullptr;
}

Sequence stream(const std::string& tenant, int64_t prompt, int64_t answer = 0) {
  Sequence s;
  s.request.tenant = tenant;
  s.prompt_tokens = prompt;
  s.tokens.assign(static_cast<size_t>(prompt + answer), 1);
  s.max_total = prompt + 300;
  return s;
}

TEST(Predictors, OracleUsesTrueLengthThenTheClientsThenTheMaximum) {
  auto oracle = predictor("oracle");
  Sequence s = stream("a", 10);
  EXPECT_EQ(oracle->answer_tokens(s), 300);
  s.request.predicted_tokens = 0;
  EXPECT_EQ(oracle->answer_tokens(s), 0);
  s.request.predicted_tokens = 7;
  EXPECT_EQ(oracle->answer_tokens(s), 7);
  s.request.known_tokens = 0;
  EXPECT_EQ(oracle->answer_tokens(s), 0);
  s.request.known_tokens = 9;
  EXPECT_EQ(oracle->answer_tokens(s), 9);
}

TEST(Predictors, ConstantReturnsItsValue) {
  EXPECT_EQ(predictor("constant:tokens=9")->answer_tokens(stream("a", 1)), 9);
}

TEST(Predictors, ErrorsListThePredictors) {
  const auto made = make_predictor("dice");
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("unknown 'dice'"), std::string::npos);
  for (const char* name : {"history", "oracle", "constant"})
    EXPECT_NE(made.error().message.find(name), std::string::npos) << made.error().message;
  EXPECT_NE(made.error().message.find(", "), std::string::npos);
  EXPECT_FALSE(make_predictor("history:speed=1").ok());
}

TEST(History, NeedsFourSimilarAnswers) {
  auto history = predictor("history:decay=0.001");
  const Sequence query = stream("a", 10);
  EXPECT_EQ(history->answer_tokens(query), 128) << "nothing is known";
  for (int i = 0; i < 4; ++i) history->learn(stream("other", 200, 1000));
  EXPECT_EQ(history->answer_tokens(query), 1000) << "all answers, since there are no similar ones";
  for (int i = 0; i < 3; ++i) history->learn(stream("b", 9, 40));
  EXPECT_NEAR(history->answer_tokens(query), (4 * 1000 + 3 * 40) / 7.0, 1e-9) << "three are too few";
  history->learn(stream("b", 15, 40));
  EXPECT_NEAR(history->answer_tokens(query), 40, 1e-9) << "four of this size";
  for (int i = 0; i < 3; ++i) history->learn(stream("a", 8, 10));
  EXPECT_NEAR(history->answer_tokens(query), (4 * 40 + 3 * 10) / 7.0, 1e-9) << "its tenant's three are too few";
  history->learn(stream("a", 8, 10));
  EXPECT_NEAR(history->answer_tokens(query), 10, 1e-9);
  EXPECT_NEAR(history->answer_tokens(stream("c", 10)), 25, 1e-9) << "the eight of all tenants of this size";
  EXPECT_NEAR(history->answer_tokens(stream("a", 200)), 1000, 1e-9) << "another size class has its own answers";
}

TEST(History, ClientsEstimateTakesPrecedence) {
  auto history = predictor("history");
  for (int i = 0; i < 4; ++i) history->learn(stream("a", 10, 50));
  Sequence s = stream("a", 10);
  s.request.predicted_tokens = 0;
  EXPECT_EQ(history->answer_tokens(s), 0);
  s.request.predicted_tokens = 3;
  EXPECT_EQ(history->answer_tokens(s), 3);
  s.request.predicted_tokens = -1;
  EXPECT_EQ(history->answer_tokens(s), 50);
}

// The mean of all answers while they are few, then a moving average: each answer moves it by `decay` of the difference.
TEST(History, ForgetsWithItsDecay) {
  auto history = predictor("history:decay=0.25");
  double mean = 0;
  for (int i = 1; i <= 20; ++i) {
    const auto length = static_cast<int64_t>(philox_uniform(1, 1, static_cast<uint64_t>(i)) * 100);
    history->learn(stream("a", 10, length));
    mean += (static_cast<double>(length) - mean) * std::max(0.25, 1.0 / i);
    EXPECT_NEAR(history->answer_tokens(stream("a", 10)), mean, 1e-9) << i;
  }
}

// Size classes are powers of two; the longest prompts share one.
TEST(History, PromptsAreGroupedByPowersOfTwo) {
  for (int power : {0, 1, 3, 10, 20}) {
    auto history = predictor("history");
    const int64_t low = int64_t{1} << power, high = 2 * low - 1;
    for (int i = 0; i < 4; ++i) history->learn(stream("a", low, 10 + power));
    for (int i = 0; i < 8; ++i) history->learn(stream("a", 0, 0));
    Sequence query = stream("a", 1);
    for (int64_t prompt : {low, high}) {
      query.prompt_tokens = prompt;
      EXPECT_EQ(history->answer_tokens(query), 10 + power) << prompt;
    }
    query.prompt_tokens = high + 1;
    EXPECT_NE(history->answer_tokens(query), 10 + power);
  }
  auto history = predictor("history");
  Sequence longest = stream("a", 0, 5);
  longest.prompt_tokens = int64_t{1} << 40;  // longer than any real prompt, but it must have a size class
  longest.tokens.clear();
  for (int i = 0; i < 4; ++i) history->learn(longest);
  EXPECT_EQ(history->answer_tokens(longest), static_cast<double>(-longest.prompt_tokens));
}

// The number of remembered tenants is bounded; the others use the answers of all tenants.
TEST(History, RemembersAThousandTenants) {
  auto history = predictor("history:decay=0.001");
  for (int tenant = 0; tenant < 1030; ++tenant)
    for (int i = 0; i < 4; ++i) history->learn(stream(std::to_string(tenant), 10, 1 + tenant));
  EXPECT_EQ(history->answer_tokens(stream("0", 10)), 1);
  EXPECT_EQ(history->answer_tokens(stream("1023", 10)), 1024);
  EXPECT_NE(history->answer_tokens(stream("1024", 10)), 1025);
  EXPECT_EQ(history->answer_tokens(stream("1024", 10)), history->answer_tokens(stream("nobody", 10)));
}

}  // namespace
}  // namespace millrace
