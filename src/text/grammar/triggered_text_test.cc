// Free text with triggers against its definition, over all short strings; and the automaton of the triggers itself.
#include <gtest/gtest.h>

#include "text/grammar/parse_table.h"
#include "text/grammar/structure.h"

namespace millrace {
namespace {

struct Wanted {
  std::vector<std::string> triggers;
  bool followed = false;  // each trigger by "!"
  bool must = false, again = false;
};

// The definition: free text up to the first trigger, what follows it, then free text again or the end.
bool is_triggered_text(std::string_view text, const Wanted& wanted, bool must) {
  for (size_t end = 1; end <= text.size(); ++end) {
    const bool found = std::ranges::any_of(
        wanted.triggers, [&](const std::string& trigger) { return text.substr(0, end).ends_with(trigger); });
    if (!found) continue;
    std::string_view rest = text.substr(end);
    if (wanted.followed) {
      if (!rest.starts_with("!")) return false;
      rest.remove_prefix(1);
    }
    return wanted.again ? is_triggered_text(rest, wanted, false) : rest.empty();
  }
  return !must;
}

Result<ExprId> add_text(GrammarSpec& spec, const Wanted& wanted) {
  std::vector<Trigger> triggers;
  RuleId after = -1;
  if (wanted.followed) {
    after = spec.add_rule("after");
    spec.set_body(after, spec.bytes("!"));
  }
  for (const std::string& text : wanted.triggers) triggers.push_back({text, after});
  return triggered_text(spec, triggers, wanted.must, wanted.again, nullptr);
}

void expect_definition(const Wanted& wanted, const std::vector<std::string>& texts) {
  GrammarSpec spec;
  const auto body = add_text(spec, wanted);
  ASSERT_TRUE(body.ok()) << body.error().message;
  spec.root = spec.add_rule("root");
  spec.set_body(spec.root, *body);
  auto grammar = Grammar::create(spec);
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  ParseTable table(std::make_shared<const Grammar>(std::move(grammar).value()));
  for (const std::string& text : texts) {
    SetId set = table.begin();
    for (size_t i = 0; i < text.size() && set != kDead; ++i) set = table.step(set, static_cast<uint8_t>(text[i]));
    ASSERT_EQ(set != kDead && table.complete(set), is_triggered_text(text, wanted, wanted.must))
        << "'" << text << "', triggers from " << wanted.triggers[0] << (wanted.followed ? ", followed" : "")
        << (wanted.must ? ", required" : "") << (wanted.again ? ", repeated" : "");
  }
}

TEST(TriggeredText, IsFreeTextUpToATriggerAndWhatFollowsIt) {
  std::vector<std::string> texts{""};
  for (size_t i = 0; texts[i].size() < 6; ++i)
    for (const char c : std::string_view("ab!")) texts.push_back(texts[i] + c);
  for (const std::vector<std::string>& triggers :
       {std::vector<std::string>{"a"}, {"ab"}, {"aab"}, {"ab", "ba"}, {"aba", "bb"}, {"abab"}, {"!"}, {"a", "b!"}})
    for (const bool followed : {false, true})
      for (const bool must : {false, true})
        for (const bool again : {false, true}) expect_definition({triggers, followed, must, again}, texts);
}

TEST(TriggeredText, OfTheFirstAndTheLastByte) {
  constexpr std::string_view kBytes("\x00\x01\x02\x61\xFE\xFF", 6);
  std::vector<std::string> texts{""};
  for (size_t i = 0; texts[i].size() < 4; ++i)
    for (const char c : kBytes) texts.push_back(texts[i] + c);
  for (const std::string& trigger :
       {std::string(1, '\0'), std::string("\x01"), std::string("\0\x01", 2), std::string("\0\0", 2),
        std::string("\x01\0", 2), std::string("\xFF"), std::string("\xFE"), std::string("\xFF\xFE")})
    for (const bool followed : {false, true})
      for (const bool again : {false, true}) expect_definition({{trigger}, followed, false, again}, texts);
}

std::shared_ptr<const Dfa> automaton_of(const Wanted& wanted) {
  GrammarSpec spec;
  const auto body = add_text(spec, wanted);
  EXPECT_TRUE(body.ok());
  return spec.at(*body).dfa;
}

TEST(TriggeredText, HasAClassForEachByteOfTheTriggersAndEachGapBetween) {
  const std::pair<std::string, int32_t> table[] = {
      {"a", 3},    {"ab", 4},   {"ac", 5},       {"aa", 3},   {std::string(1, '\0'), 2}, {std::string("\0z", 2), 4},
      {"\xFF", 2}, {"\xFE", 3}, {"\xFE\xFF", 3}, {"a\xFF", 4}};
  for (const auto& [trigger, classes] : table) {
    const auto dfa = automaton_of({{trigger}, false, true, false});
    EXPECT_EQ(dfa->classes, classes) << trigger;
    for (size_t byte = 1; byte < 256; ++byte) {
      const auto used = [&](size_t b) { return trigger.find(static_cast<char>(b)) != std::string::npos; };
      ASSERT_EQ(dfa->class_of[byte] != dfa->class_of[byte - 1], used(byte) || used(byte - 1)) << trigger << byte;
    }
  }
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(automaton_of({{all}, false, true, false})->classes, 256);
}

TEST(TriggeredText, HasAStateForEachPrefixAndOneForTheEnd) {
  using Flags = std::vector<uint8_t>;
  const auto required = automaton_of({{"ab", "ac"}, false, true, false});  // "", a, ab, ac, the end
  EXPECT_EQ(required->accepting, (Flags{0, 0, 1, 1, 1}));
  EXPECT_EQ(required->ticks, Flags(5, 0));
  EXPECT_EQ(required->calls.size(), 5u);
  const auto free = automaton_of({{"ab", "ac"}, false, false, true});
  EXPECT_EQ(free->accepting, (Flags{1, 1, 1, 1, 1}));
  const auto followed = automaton_of({{"ab", "ac"}, true, false, false});
  EXPECT_EQ(followed->accepting, (Flags{1, 1, 0, 0, 1}));
  EXPECT_TRUE(followed->calls[1].empty());
  for (const size_t state : {2u, 3u}) {
    ASSERT_EQ(followed->calls[state].size(), 1u);
    EXPECT_EQ(followed->calls[state][0].rule, 0);
    EXPECT_EQ(followed->calls[state][0].to, 4);
  }
}

}  // namespace
}  // namespace millrace
