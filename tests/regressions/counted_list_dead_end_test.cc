// A stream constrained by minItems, maxItems, minProperties or maxProperties could write text that nothing may follow:
// white space before "]" while items were missing, or a comma where no further member fits. The client got "no token is
// left". The schemas in the tests had minItems of at most 1 and no maxProperties, where neither can happen.
#include <gtest/gtest.h>

#include <random>
#include <tuple>

#include "base/ordered_json.h"
#include "text/grammar/constraint.h"
#include "text/grammar/matcher.h"

namespace millrace {
namespace {

struct Case {
  std::string schema;
  size_t least = 0, most = SIZE_MAX;  // items or members of the outermost list
};

std::string long_object() {
  nlohmann::json schema = {{"type", "object"}, {"required", {"k7", "k3"}}, {"minProperties", 1}, {"maxProperties", 4}};
  for (int i = 0; i < 80; ++i) schema["properties"]["k" + std::to_string(i)] = {{"type", "null"}};
  schema["additionalProperties"] = {{"type", "null"}};
  return schema.dump();
}

std::vector<Case> cases() {
  return {
      {R"({"type":"array","items":{"const":true},"minItems":2})", 2},
      {R"({"type":"array","items":{"const":true},"minItems":3,"maxItems":3})", 3, 3},
      {R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":5})", 2, 5},
      {R"({"type":"array","items":{"type":"boolean"},"maxItems":2})", 0, 2},
      {R"({"type":"array","items":{"type":"string","minLength":2,"maxLength":3},"minItems":2,"maxItems":3})", 2, 3},
      {R"({"type":"array","prefixItems":[{"const":1},{"const":2}],"items":{"type":"null"},"minItems":4,"maxItems":6})",
       4, 6},
      {R"({"type":"array","prefixItems":[{"const":1},{"const":2}],"items":{"type":"null"},"minItems":1,"maxItems":3})",
       1, 3},
      {R"({"type":"object","additionalProperties":{"const":1},"maxProperties":1})", 0, 1},
      {R"({"type":"object","additionalProperties":{"const":1},"minProperties":1,"maxProperties":2})", 1, 2},
      {R"({"type":"object","properties":{"a":{"const":1},"na":{"type":"boolean"},"name":{"const":2}},"additionalProperties":false,
           "maxProperties":2})",
       0, 2},
      {R"({"type":"object","properties":{"a":{"const":1},"na":{"type":"boolean"},"name":{"const":2},"x":true},
           "required":["name","a"],"additionalProperties":false,"minProperties":3,"maxProperties":3})",
       3, 3},
      {R"({"type":"object","properties":{"a":{"const":1},"name":{"type":"boolean"}},"required":["name"],
           "additionalProperties":{"const":1},"minProperties":2,"maxProperties":3})",
       2, 3},
      {R"({"type":"object","properties":{"a":{"const":1},"name":{"type":"boolean"}},"required":["name","a"],
           "additionalProperties":{"const":1},"maxProperties":2})",
       2, 2},
      {R"({"type":"array","items":{"type":"array","items":{"const":1},"minItems":2,"maxItems":3},"minItems":2,"maxItems":3})",
       2, 3},
      {R"({"type":"array","items":{"type":"object","additionalProperties":{"type":"array","items":{"const":0},"minItems":2},
           "maxProperties":1},"minItems":2})",
       2},
      {R"({"type":"object","additionalProperties":{"anyOf":[{"type":"array","items":{"const":1},"minItems":2,"maxItems":2},
           {"type":"array","items":{"type":"integer"},"minItems":3}]},"maxProperties":2})",
       0, 2},
      {R"({"type":"array","items":{"anyOf":[{"$ref":"#"},{"const":7}]},"minItems":2,"maxItems":2})", 2, 2},
      {long_object(), 2, 4},
  };
}

std::vector<std::string> list_pieces() {
  std::vector<std::string> all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(std::string(1, static_cast<char>(byte)));
  for (const char* piece : {"true",      ", ",    ",\n",        "\n  ",      " \n",       "\n\t]",    "1,",
                            "1,1",       "1,1,1", "1]",         "],[",       "]]",        "[1,1],[1", "\"a",
                            "\"a\"",     "\":",   "\": ",       ",\"",       "{\"",       "},{\"",    "{\"a\":1",
                            "\"name\":", ":1,\"", ":1}",        ":null,\"k", "null,null", ",null]",   "true,true]",
                            "00",        "\",\"", "ab\",\"ab\""})
    all.push_back(piece);
  return all;
}

Result<Grammar> compiled(const std::string& schema) {
  Constraint constraint;
  constraint.kind = Constraint::Kind::json_schema;
  constraint.text = schema;
  return compile_constraint(constraint);
}

TEST(CountedListDeadEnd, EveryAllowedPrefixCanBeCompleted) {
  for (const Case& one : cases()) {
    auto grammar = compiled(one.schema);
    ASSERT_TRUE(grammar.ok()) << one.schema << grammar.error().message;
    const auto shared = std::make_shared<const Grammar>(std::move(grammar).value());
    ParseTable table(shared);
    // All states that can be reached within this many bytes; where there is no end of them, a few thousand more.
    std::vector<std::pair<SetId, std::string>> order{{table.begin(), ""}};
    std::vector<std::vector<size_t>> before(1);
    std::map<SetId, size_t> known{{order[0].first, 0}};
    constexpr size_t kMax = 6000;
    size_t at = 0;
    for (; at < order.size() && order.size() < kMax; ++at) {
      const auto [set, text] = order[at];
      bool on = false;
      for (int32_t c = 0; c < shared->classes(); ++c) {
        const SetId to = table.step(set, shared->sample(c));
        if (to == kDead) continue;
        on = true;
        const auto [entry, fresh] = known.try_emplace(to, order.size());
        if (fresh) order.emplace_back(to, text + static_cast<char>(shared->sample(c))), before.emplace_back();
        before[entry->second].push_back(at);
      }
      ASSERT_TRUE(on || table.complete(set)) << one.schema << "\nnothing may follow: " << text;
      ASSERT_TRUE(!table.complete(set) || on == table.can_continue(set)) << one.schema << "\n" << text;
    }
    ASSERT_EQ(table.exceeded(), ParseBound::none);
    std::vector<uint8_t> ends(order.size(), 0);
    std::vector<size_t> stack;
    const auto reach = [&](size_t node) {
      if (!std::exchange(ends[node], uint8_t{1})) stack.push_back(node);
    };
    for (size_t i = 0; i < order.size(); ++i)
      if (i >= at || table.complete(order[i].first)) reach(i);
    while (!stack.empty()) {
      const size_t node = stack.back();
      stack.pop_back();
      for (const size_t from : before[node]) reach(from);
    }
    for (size_t i = 0; i < order.size(); ++i) ASSERT_TRUE(ends[i]) << one.schema << "\nhas no end: " << order[i].second;
  }
}

TEST(CountedListDeadEnd, MasksAreExactAndLeadToAListWithinItsBounds) {
  const std::vector<std::string> vocabulary = list_pieces();
  GrammarCache cache(list_pieces);
  for (const Case& one : cases()) {
    Constraint constraint;
    constraint.kind = Constraint::Kind::json_schema;
    constraint.text = one.schema;
    const auto held = cache.get(constraint);
    ASSERT_TRUE(held.ok()) << held.error().message;
    size_t whole = 0;
    for (uint32_t seed = 0; seed < 40; ++seed) {
      std::mt19937 random(seed);
      GrammarMatcher matcher(*held);
      std::vector<uint64_t> bits(matcher.words());
      std::string text;
      for (int step = 0; step < 60; ++step) {
        const size_t count = matcher.mask(bits);
        std::vector<TokenId> allowed;
        for (size_t id = 0; id < vocabulary.size(); ++id) {
          const bool masked = bits[id / 64] >> (id % 64) & 1;
          ASSERT_EQ(masked, matcher.allows(static_cast<TokenId>(id)))
              << one.schema << "\nafter: " << text << "\ntoken: " << vocabulary[id];
          if (masked) allowed.push_back(static_cast<TokenId>(id));
        }
        ASSERT_EQ(count, allowed.size());
        ASSERT_EQ(allowed.empty(), matcher.exhausted()) << one.schema << "\nnothing may follow: " << text;
        if (allowed.empty()) break;
        // Half of the time a piece that spans brackets and commas, instead of a letter.
        std::vector<TokenId> long_ones;
        for (const TokenId id : allowed)
          if (id > 255) long_ones.push_back(id);
        const auto& some = !long_ones.empty() && random() % 2 ? long_ones : allowed;
        const TokenId next = some[random() % some.size()];
        ASSERT_TRUE(matcher.accept(next));
        text += vocabulary[static_cast<size_t>(next)];
      }
      if (!matcher.complete()) continue;
      ++whole;
      // A repeated key counts twice: members are counted as they are written.
      size_t members = 0, depth = 0;
      const auto count = [&](int, nlohmann::json::parse_event_t event, const nlohmann::json&) {
        using Event = nlohmann::json::parse_event_t;
        const bool object = text[0] == '{';
        const bool begins = event == Event::object_start || event == Event::array_start;
        if (event == Event::object_end || event == Event::array_end) --depth;
        if (depth == 1 && (object ? event == Event::key : begins || event == Event::value)) ++members;
        if (begins) ++depth;
        return true;
      };
      ASSERT_NO_THROW(std::ignore = nlohmann::json::parse(text, count)) << text;
      EXPECT_LE(one.least, members) << one.schema << "\n" << text;
      EXPECT_GE(one.most, members) << one.schema << "\n" << text;
    }
    EXPECT_GT(whole, 0u) << one.schema;
  }
}

// Each member needs two members of the same kind.
TEST(CountedListDeadEnd, AnInfinitelyRecursiveListIsRefused) {
  const auto endless = compiled(
      R"({"type":"object","properties":{"a":{"const":1}},"required":["a"],"additionalProperties":{"$ref":"#"},"minProperties":2,"maxProperties":3})");
  ASSERT_FALSE(endless.ok());
  EXPECT_EQ(endless.error().message, "grammar: no text satisfies it");
  EXPECT_TRUE(
      compiled(
          R"({"type":"object","properties":{"a":{"const":1}},"required":["a"],"additionalProperties":{"$ref":"#"},"maxProperties":3})")
          .ok());
}

}  // namespace
}  // namespace millrace
