#include "text/grammar/lark.h"

#include <gtest/gtest.h>

#include <regex>
#include <vector>

namespace millrace {
namespace {

TEST(Lark, TranslatesToRegex) {
  const std::pair<const char*, std::vector<std::string>> good[] = {
      {"start: expr\nexpr: term (SP ADD SP term)* -> add\n| term\nterm: INT\nSP: \" \"\nADD: \"+\"\n%import common.INT",
       {"1", "12 + 3", "1 + 2 + 3"}},
      {"// a comment\nstart: [SIGN] NUM \".\"? /[a-f]+/\n\nSIGN: \"+\" | \"-\"\n%import common.INT -> NUM",
       {"+1.aa", "7f", "-12.b"}},
      {"?start: \"a/b\" | /x\\/y[/]/ // both\n  | \"\\\"\\n\"", {"a/b", "x/y/", "\"\n"}},
      {"start: \"a\" ~ 2..3 WS_INLINE \"\xC3\xA9\"+\n%import common.WS_INLINE",
       {"aa \xC3\xA9", "aaa\t\xC3\xA9\xC3\xA9"}}};
  for (const auto& [grammar, texts] : good) {
    const auto regex = lark_to_regex(grammar);
    ASSERT_TRUE(regex.ok()) << grammar << regex.error().message;
    for (const std::string& text : texts)
      EXPECT_TRUE(std::regex_match(text, std::regex(*regex))) << *regex << " " << text;
    EXPECT_FALSE(std::regex_match("no match", std::regex(*regex)));
  }
  for (const char* bad : {"", "start", "start: \"a", "start: /a", "start: (\"a\"", "start: \"a\"..\"\"", "start: x{y}",
                          "start: \"a\" ~ 5000", "start: \"a\"\nstart: \"b\"", "start: ~ 2", "start: *",
                          "start: \"\\x\"", "start: /a/i", "%declare A\nstart: A"})
    EXPECT_FALSE(lark_to_regex(bad).ok()) << bad;
}

}  // namespace
}  // namespace millrace
