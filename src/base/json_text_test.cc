#include "base/json_text.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(JsonText, DepthIgnoresBracketsInStrings) {
  EXPECT_FALSE(nests_deeper("", 0));
  EXPECT_FALSE(nests_deeper("7", 0));
  EXPECT_TRUE(nests_deeper("[]", 0));
  EXPECT_FALSE(nests_deeper("[[],[],{}]", 2));
  EXPECT_TRUE(nests_deeper("[[],[{}]]", 2));
  EXPECT_FALSE(nests_deeper(R"({"[[[": "{{\"[[\\"})", 1));
  EXPECT_TRUE(nests_deeper(R"(["\\", [["]"]]])", 2));
}

TEST(JsonText, RejectsDeeperNesting) {
  const std::string deep = std::string(256, '[') + std::string(256, ']');
  EXPECT_FALSE(parse_json(deep).is_discarded());
  EXPECT_TRUE(parse_json("[" + deep + "]").is_discarded());
  EXPECT_FALSE(parse_json("[" + deep + "]", kMaxOwnJsonDepth).is_discarded());
  for (const char* bad : {"", "{", "[1,]", "\"\xFF\"", "nul", "{} {}"})
    EXPECT_TRUE(parse_json(bad).is_discarded()) << bad;
  EXPECT_EQ(parse_json<nlohmann::json>(R"({"b": 1, "a": 2})").begin().key(), "a");
}

}  // namespace
}  // namespace millrace
