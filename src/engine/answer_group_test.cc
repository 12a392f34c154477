#include "engine/answer_group.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TokenEvent token(int64_t answer, TokenId id, FinishReason finish = FinishReason::none) {
  TokenEvent event;
  event.answer = answer;
  event.token = id;
  event.finish = finish;
  return event;
}

std::vector<TokenId> tokens_of(const std::vector<TokenEvent>& events) {
  std::vector<TokenId> out;
  for (const auto& event : events) out.push_back(event.token);
  return out;
}

TEST(AnswerGroup, StreamsWhenAllAnswersAreWanted) {
  AnswerGroup group(2, 2);
  std::vector<TokenEvent> events;
  group.add(token(1, 5, FinishReason::stop), 0, events);
  group.add(token(0, 6), 0, events);
  group.add(token(0, 7, FinishReason::length), 0, events);
  EXPECT_EQ(tokens_of(events), (std::vector<TokenId>{5, 6, 7}));
  EXPECT_FALSE(events[0].last);
  EXPECT_TRUE(events[2].last);
}

TEST(AnswerGroup, EmitsTheBestWhenTheLastHasEnded) {
  AnswerGroup group(4, 2);
  std::vector<TokenEvent> events;
  group.add(token(0, 1, FinishReason::stop), -2, events);
  group.add(token(1, 2), 0, events);
  group.add(token(2, 3, FinishReason::length), -1, events);
  group.add(token(3, 4, FinishReason::cancelled), -0.5, events);  // cancelled: ranks after complete answers
  EXPECT_TRUE(events.empty());
  group.add(token(1, 5, FinishReason::stop), -1, events);  // equal to answer 2: the first wins
  EXPECT_EQ(tokens_of(events), (std::vector<TokenId>{2, 5, 3}));
  EXPECT_EQ(events[0].answer, 0);
  EXPECT_EQ(events[1].answer, 0);
  EXPECT_EQ(events[1].score, -1);
  EXPECT_FALSE(events[1].last);
  EXPECT_EQ(events[2].answer, 1);
  EXPECT_TRUE(events[2].last);
}

}  // namespace
}  // namespace millrace
