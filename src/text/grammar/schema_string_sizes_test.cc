// The automata of strings: lengths that the pattern implies cost no states, and others are counted in characters.
#include <gtest/gtest.h>

#include "text/grammar/json_rules.h"
#include "text/grammar/schema_strings.h"

namespace millrace {
namespace {

StringBounds bounded_pattern(const char* pattern, uint32_t min, uint32_t max = kNoLimit) {
  StringBounds bounds;
  bounds.patterns = {pattern};
  bounds.min_length = min;
  bounds.max_length = max;
  return bounds;
}

TEST(StringSizes, LengthsThatThePatternImpliesNeedNoStates) {
  GrammarLimits limits;
  limits.dfa_states = 100;  // 20 counted characters need more
  const struct {
    const char* pattern;
    uint32_t min, max;
    bool implied;
  } table[] = {{"^a{20}$", 0, kNoLimit, true},   {"^a{20}$", 0, 20, true},
               {"^a{20}$", 0, 1'000'000, true},  {"^a{20}$", 20, kNoLimit, true},
               {"^a{20}$", 20, 20, true},        {"^a{20}$", 0, 19, false},
               {"^a{20}$", 21, kNoLimit, false}, {"^[a\\n]{3,20}$", 3, 20, true},
               {"^[a\\n]{3,20}$", 0, 19, false}, {"^[a\xC3\xA9]{20}$", 20, 20, true},
               {"^(a{20}|b*)$", 0, 30, false},   {"^b*a{20}$", 20, kNoLimit, true},
               {"^b*$", 0, 20, false},           {"^a?b?$", 0, 2, true}};
  for (const auto& [pattern, min, max, implied] : table) {
    const auto dfa = string_dfa(bounded_pattern(pattern, min, max), limits, "s");
    EXPECT_EQ(dfa.ok(), implied) << pattern << " " << min << " " << max;
    if (dfa.ok()) continue;
    EXPECT_EQ(dfa.error().kind, ErrorKind::unsupported);
    EXPECT_EQ(dfa.error().message, "s: s: too large, its automaton has more than 100 states; simplify it");
  }
}

TEST(StringSizes, EachCharacterCountsOnceHoweverItIsSpelled) {
  for (const char* pattern : {"^a$", "^\\n$", "^\\u0000$", "^\\u001f$", "^\"$", "^\\\\$", "^\xC3\xA9$",
                              "^\xE2\x82\xAC$", "^\xF0\x9F\x98\x80$", "^[\xC3\xA9\\u0001\xF0\x9F\x98\x80]$"}) {
    for (uint32_t length = 0; length < 8; ++length) {
      const auto least = string_dfa(bounded_pattern(pattern, length), {}, "s");
      const auto most = string_dfa(bounded_pattern(pattern, 0, length), {}, "s");
      ASSERT_TRUE(least.ok() && most.ok());
      EXPECT_EQ(least->empty(), length > 1) << pattern << " of " << length << " or more";
      EXPECT_EQ(most->empty(), length < 1) << pattern << " of " << length << " or fewer";
    }
  }
}

TEST(StringSizes, EveryStateHasItsEntries) {
  StringBounds excluded;
  excluded.excluded = {"a\n"};
  for (const StringBounds& bounds : {StringBounds(), excluded, bounded_pattern("^a", 1, 3), bounded_pattern("^$", 1)}) {
    const auto dfa = string_dfa(bounds, {}, "s");
    ASSERT_TRUE(dfa.ok());
    const auto states = static_cast<size_t>(dfa->size());
    EXPECT_EQ(dfa->ticks, std::vector<uint8_t>(states, 0));
    EXPECT_EQ(dfa->calls.size(), states);
    EXPECT_EQ(dfa->next.size(), states * static_cast<size_t>(dfa->classes));
  }
  const Dfa all = string_dfa({}, {}, "s").value();
  for (const char* text : {"", "a", "\\n", "\xF0\x9F\x98\x80", "\\u0000a"}) EXPECT_TRUE(all.accepts(text)) << text;
  for (const char* text : {"\"", "\n", "\\", "\xC3"}) EXPECT_FALSE(all.accepts(text)) << text;
}

TEST(StringSizes, LookAheadIsSupportedBehindTheBeginAlone) {
  for (const char* pattern : {"(?=a)a", "(?!a)b", "(?=a)", "a(?=b)", "(?=a)^a", "^a(?=b)", "^(?=a)|b", "^(?=a"}) {
    const auto dfa = schema_pattern_dfa(pattern, {});
    EXPECT_FALSE(dfa.ok()) << pattern;
  }
  const Dfa both = schema_pattern_dfa("^(?=.*b)(?!.*c)a", {}).value();
  for (const char* text : {"ab", "axxb", "ab\\n"}) EXPECT_TRUE(both.accepts(text)) << text;
  for (const char* text : {"a", "abc", "acb", "ba", "xab", ""}) EXPECT_FALSE(both.accepts(text)) << text;
}

}  // namespace
}  // namespace millrace
