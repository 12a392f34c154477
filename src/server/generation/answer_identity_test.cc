#include "server/generation/answer_identity.h"

#include <gtest/gtest.h>

#include "server/generation/answer_reader.h"

namespace millrace {
namespace {

TEST(AnswerIdentity, ReadsWhatItWrites) {
  const AnswerIdentity identity{"5f0c-A_9", 1764500000, 9007199254740991};
  const auto read = AnswerIdentity::parse(identity.text());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->id, identity.id);
  EXPECT_EQ(read->created, identity.created);
  EXPECT_EQ(read->seed, identity.seed);
}

TEST(AnswerIdentity, RefusesTheRest) {
  for (const char* bad : {"", "id=", "id=a", "id=a, created=1", "id=a, created=1, seed=", "id=a, created=-1, seed=2",
                          "id=a b, created=1, seed=2", "id=a\", created=1, seed=2", "id=a, created=1, seed=2, more=3",
                          "id=a, created=99999999999999999999, seed=2", "created=1, id=a, seed=2",
                          "id=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, created=1, seed=2"})
    EXPECT_FALSE(AnswerIdentity::parse(bad)) << bad;
}

TEST(CallIds, DependOnTheAnswerAlone) {
  EXPECT_EQ(call_id("answer", 0, 0, false), call_id("answer", 0, 0, false));
  EXPECT_NE(call_id("answer", 0, 0, false), call_id("answer", 0, 1, false));
  EXPECT_NE(call_id("answer", 0, 1, false), call_id("answer", 1, 0, false));
  EXPECT_NE(call_id("answer", 0, 0, false), call_id("other", 0, 0, false));
  EXPECT_EQ(call_id("answer", 0, 0, false).size(), 29u);
  EXPECT_EQ(call_id("answer", 0, 0, true).size(), 9u);
  for (const char c : call_id("answer", 3, 2, true)) EXPECT_TRUE(std::isalnum(static_cast<unsigned char>(c))) << c;
}

}  // namespace
}  // namespace millrace
