// What each predictor says, asked directly: which answers it goes by, and from which one on.
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

TEST(Predictors, ConstantReturnsItsValue) { EXPECT_EQ(predictor("constant:tokens=9")->answer_tokens(stream("a", 1)), 9); }

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
  const Sequence asked = stream("a", 10);
  EXPECT_EQ(history->answer_tokens(asked), 128) << "nothing is known";
  for (int i = 0; i < 4; ++i) history->learn(stream("other", 200, 1000));
  EXPECT_EQ(history->answer_tokens(asked), 1000) << "all, there being nothing nearer";
  for (int i = 0; i < 3; ++i) history->learn(stream("b", 9, 40));
  EXPECT_NEAR(history->answer_tokens(asked), (4 * 1000 + 3 * 40) / 7.0, 1e-9) << "three are too few";
  history->learn(stream("b", 15, 40));
  EXPECT_NEAR(history->answer_tokens(asked), 40, 1e-9) << "four of this size";
  for (int i = 0; i < 3; ++i) history->learn(stream("a", 8, 10));
  EXPECT_NEAR(history->answer_tokens(asked), (4 * 40 + 3 * 10) / 7.0, 1e-9) << "its tenant's three are too few";
  history->learn(stream("a", 8, 10));
  EXPECT_NEAR(history->answer_tokens(asked), 10, 1e-9);
  EXPECT_NEAR(history->answer_tokens(stream("c", 10)), 25, 1e-9) << "everybody's eight of this size";
  EXPECT_NEAR(history->answer_tokens(stream("a", 200)), 1000, 1e-9) << "another size is another matter";
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

// The mean of all while they are few, then one that forgets: each answer moves it by `decay` of the difference.
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

// Sizes are powers of two; the longest share one.
TEST(History, PromptsAreGroupedByPowersOfTwo) {
  for (int power : {0, 1, 3, 10, 20}) {
    auto history = predictor("history");
    const int64_t low = int64_t{1} << power, high = 2 * low - 1;
    for (int i = 0; i < 4; ++i) history->learn(stream("a", low, 10 + power));
    for (int i = 0; i < 8; ++i) history->learn(stream("a", 0, 0));
    Sequence asked = stream("a", 1);
    for (int64_t prompt : {low, high}) {
      asked.prompt_tokens = prompt;
      EXPECT_EQ(history->answer_tokens(asked), 10 + power) << prompt;
    }
    asked.prompt_tokens = high + 1;
    EXPECT_NE(history->answer_tokens(asked), 10 + power);
  }
  auto history = predictor("history");
  Sequence longest = stream("a", 0, 5);
  longest.prompt_tokens = int64_t{1} << 40;  // of no real prompt; its size must have a place all the same
  longest.tokens.clear();
  for (int i = 0; i < 4; ++i) history->learn(longest);
  EXPECT_EQ(history->answer_tokens(longest), static_cast<double>(-longest.prompt_tokens));
}

// However many tenants come, so many are remembered, and the others go by everybody's answers.
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
