// Compares masks with their definition: a token is allowed if and only if its bytes can be fed. Covers grammars of
// every kind, along random walks, with a vocabulary that crosses all boundaries. Also: text sampled from masks always
// satisfies the constraint.
#include "text/grammar/matcher.h"

#include <random>

#include "text/grammar/grammar_test.h"

namespace millrace {
namespace {

using testing::gbnf_of;
using testing::make_constraint;
using testing::regex_of;
using testing::schema_of;

struct Case {
  const char* name;
  Constraint constraint;
};

Constraint choice_of(std::vector<std::string> choices) {
  Constraint constraint;
  constraint.kind = Constraint::Kind::choice;
  constraint.choices = std::move(choices);
  return constraint;
}

std::vector<Case> cases() {
  const char* arithmetic = R"gbnf(
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
)gbnf";
  return {
      {"json_object", make_constraint(Constraint::Kind::json_object, "")},
      {"any", schema_of("true")},
      {"person",
       schema_of(
           R"({"type":"object","properties":{"name":{"type":"string","minLength":2,"maxLength":7},"na":{"type":"integer","minimum":-3,"maximum":120},
         "items":{"type":"array","items":{"enum":["yes","no","maybe",1,null]},"minItems":1,"maxItems":3}},"required":["name","items"],"additionalProperties":false})")},
      {"extra",
       schema_of(
           R"({"type":"object","properties":{"name":{"type":"number"},"type":{"const":"x"}},"additionalProperties":{"type":"boolean"},"minProperties":1})")},
      {"tree",
       schema_of(
           R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"value":{"type":"integer"},"items":{"type":"array","items":{"$ref":"#/$defs/node"}}},
         "required":["value"],"additionalProperties":false}}})")},
      {"overlap",
       schema_of(R"({"anyOf":[{"type":"object","properties":{"name":{"type":"string"}},"additionalProperties":false},
         {"type":"object","properties":{"name":{"type":"array","items":{"type":"string","maxLength":3}},"x":{"type":"null"}},"required":["name"],"additionalProperties":false}]})")},
      {"pattern",
       schema_of(
           R"({"type":"array","items":{"type":"string","pattern":"^[a-c]{1,3}(-\\d+)?$","maxLength":6},"maxItems":4})")},
      {"short", schema_of(R"({"type":"string","maxLength":2})")},
      {"unique",
       schema_of(R"({"type":"array","items":{"enum":["yes","no","maybe"]},"uniqueItems":true,"minItems":2})")},
      {"regex", regex_of(R"(([a-z]{2,4}|\d{1,3}(\.\d+)?),\s?"[^"]*")")},
      {"unicode", regex_of("(\xC3\xA9|[\xF0\x9F\x98\x80-\xF0\x9F\x98\x85]|\\p{Lu}){1,4}")},
      {"arithmetic", gbnf_of(arithmetic)},
      {"nested", gbnf_of("root ::= \"(\" root \")\" root | \"x\" | \"\"")},
      {"right", gbnf_of("root ::= \"ab\" root | \"abc\"")},
      {"choice", choice_of({"yes", "yes, no", "no", "maybe", "hello world"})},
      {"trigger",
       make_constraint(
           Constraint::Kind::json_schema,
           R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false})",
           "nana")},
  };
}

class Masks : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    auto compiled = cache_.get(GetParam().constraint);
    ASSERT_TRUE(compiled.ok()) << compiled.error().message;
    compiled_ = *compiled;
  }
  std::vector<std::string> pieces_ = testing::small_vocabulary();
  GrammarCache cache_{[this] { return pieces_; }};
  CompiledGrammar compiled_;
};

// label(once): compares masks with a search in plain arithmetic, thousands of times
TEST_P(Masks, AreExactAlongRandomWalks) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed);
    GrammarMatcher matcher(compiled_);
    std::vector<uint64_t> bits(matcher.words());
    std::string text;
    for (int step = 0; step < 60; ++step) {
      const size_t count = matcher.mask(bits);
      std::vector<TokenId> allowed;
      for (size_t id = 0; id < pieces_.size(); ++id) {
        GrammarMatcher trial = matcher;
        const bool masked = bits[id / 64] >> (id % 64) & 1;
        const bool fed = !pieces_[id].empty() && trial.accept_text(pieces_[id]);
        ASSERT_EQ(masked, fed) << "after '" << text << "', token '" << pieces_[id] << "'";
        ASSERT_EQ(matcher.allows(static_cast<TokenId>(id)), fed);
        if (masked) allowed.push_back(static_cast<TokenId>(id));
      }
      ASSERT_EQ(count, allowed.size());
      ASSERT_EQ(allowed.empty(), matcher.exhausted()) << "a dead end after '" << text << "'";
      const std::string forced = matcher.jump_ahead();
      if (!forced.empty()) {
        for (TokenId id : allowed) {
          const std::string& piece = pieces_[static_cast<size_t>(id)];
          ASSERT_EQ(piece.substr(0, forced.size()), forced.substr(0, piece.size())) << "after '" << text << "'";
        }
      }
      if (allowed.empty() || (matcher.complete() && random() % 4 == 0)) break;
      const TokenId next = allowed[random() % allowed.size()];
      ASSERT_TRUE(matcher.accept(next));
      text += pieces_[static_cast<size_t>(next)];
    }
  }
}

TEST_P(Masks, RollbackIsTheInverseOfAccept) {
  std::mt19937 random(7);
  GrammarMatcher matcher(compiled_);
  std::vector<std::vector<uint64_t>> seen;
  std::vector<bool> complete;
  std::vector<uint64_t> bits(matcher.words());
  for (int step = 0; step < 40; ++step) {
    matcher.mask(bits);
    seen.push_back(bits);
    complete.push_back(matcher.complete());
    std::vector<TokenId> allowed;
    for (size_t id = 0; id < pieces_.size(); ++id)
      if (bits[id / 64] >> (id % 64) & 1) allowed.push_back(static_cast<TokenId>(id));
    if (allowed.empty()) break;
    ASSERT_TRUE(matcher.accept(allowed[random() % allowed.size()]));
  }
  while (seen.size() > 1) {
    const size_t back = std::min<size_t>(1 + random() % 3, seen.size() - 1);
    matcher.rollback(back);
    matcher.mask(bits);
    seen.resize(seen.size() - back);
    complete.resize(seen.size());
    if (std::equal(bits.begin(), bits.end(), seen.back().begin())) {
      EXPECT_EQ(matcher.complete(), complete.back());
      continue;
    }
    // The walk ended at its length limit, one token after the last mask.
    matcher.rollback(1);
    matcher.mask(bits);
    ASSERT_EQ(bits, seen.back());
    EXPECT_EQ(matcher.complete(), complete.back());
  }
}

INSTANTIATE_TEST_SUITE_P(Grammars, Masks, ::testing::ValuesIn(cases()),
                         [](const auto& one) { return std::string(one.param.name); });

// A random walk that prefers closing tokens after `tokens` steps, so that it ends soon.
std::string walk(GrammarMatcher matcher, const std::vector<std::string>& pieces, uint32_t seed, int tokens) {
  std::mt19937 random(seed);
  std::vector<uint64_t> bits(matcher.words());
  std::string text;
  for (int step = 0; step < 4000; ++step) {
    if (matcher.complete() && (step > tokens || matcher.exhausted())) return text;
    matcher.mask(bits);
    std::vector<TokenId> allowed;
    for (size_t id = 0; id < pieces.size(); ++id)
      if (bits[id / 64] >> (id % 64) & 1) allowed.push_back(static_cast<TokenId>(id));
    if (allowed.empty()) return text + "<dead end>";
    TokenId next = allowed[random() % allowed.size()];
    if (step > tokens) {  // prefer closing tokens
      for (const char* closing : {"\"", "}", "]", ":", "0", "null"})
        for (TokenId id : allowed)
          if (pieces[static_cast<size_t>(id)] == closing) {
            next = id;
            goto chosen;
          }
    }
  chosen:
    matcher.accept(next);
    text += pieces[static_cast<size_t>(next)];
  }
  return text + "<no end>";
}

TEST(Walks, AlwaysEndInJsonThatTheSchemaAllows) {
  const std::vector<std::string> pieces = testing::small_vocabulary();
  GrammarCache cache([&] { return pieces; });
  for (const Case& one : cases()) {
    if (one.constraint.kind != Constraint::Kind::json_schema && one.constraint.kind != Constraint::Kind::json_object)
      continue;
    if (!one.constraint.trigger.empty()) continue;
    auto compiled = cache.get(one.constraint);
    ASSERT_TRUE(compiled.ok());
    testing::TextMatcher whole(one.constraint);
    for (uint32_t seed = 0; seed < 40; ++seed) {
      const std::string text = walk(GrammarMatcher(*compiled), pieces, seed, static_cast<int>(seed) * 2);
      EXPECT_TRUE(nlohmann::json::accept(text)) << one.name << ": " << text;
      EXPECT_TRUE(whole.accepts(text)) << one.name << ": " << text;
    }
  }
}

TEST(Matcher, RollbackIsLimitedToItsHistory) {
  GrammarCache cache([] { return testing::small_vocabulary(); });
  GrammarMatcher matcher(*cache.get(regex_of("[a-z]*")));
  for (int i = 0; i < 5000; ++i) ASSERT_TRUE(matcher.accept('a'));
  matcher.rollback(GrammarMatcher::kMaxRollback);
  EXPECT_TRUE(matcher.accept('b'));
  matcher.reset();
  EXPECT_TRUE(matcher.complete());
}

TEST(Matcher, MemoryStaysBoundedOverALongText) {
  GrammarCache cache([] { return testing::small_vocabulary(); });
  GrammarMatcher matcher(*cache.get(schema_of(
      R"({"type":"array","items":{"type":"array","items":{"type":"string","minLength":500},"maxItems":100000}})")));
  std::vector<uint64_t> bits(matcher.words());
  ASSERT_TRUE(matcher.accept_text("[["));
  for (int item = 0; item < 60; ++item) {
    ASSERT_TRUE(matcher.accept_text(item ? ",\"" : "\""));
    for (int i = 0; i < 700; ++i) ASSERT_TRUE(matcher.accept('a'));
    matcher.mask(bits);
    ASSERT_TRUE(matcher.accept_text("\""));
  }
  EXPECT_LT(matcher.bytes(), size_t{40} << 20);
}

TEST(Matcher, DeepNestingEndsBeforeTheLimit) {
  GrammarCache cache([] { return testing::small_vocabulary(); });
  GrammarMatcher matcher(*cache.get(schema_of("true")));
  std::vector<uint64_t> bits(matcher.words());
  size_t depth = 0;
  while (matcher.accept('[')) ++depth;
  EXPECT_GT(depth, 900u);
  EXPECT_LT(depth, 1100u);
  for (int i = 0; i < 5; ++i) {
    matcher.mask(bits);
    const auto pieces = testing::small_vocabulary();
    for (size_t id = 0; id < pieces.size(); ++id) {
      GrammarMatcher trial = matcher;
      ASSERT_EQ((bits[id / 64] >> (id % 64) & 1) != 0, !pieces[id].empty() && trial.accept_text(pieces[id]))
          << pieces[id];
    }
    ASSERT_TRUE(matcher.accept(']'));
  }
}

TEST(Matcher, StringsShareMasksAcrossLengthsAndPlaces) {
  GrammarCache cache([] { return testing::small_vocabulary(); });
  const auto compiled = cache.get(schema_of(R"({"type":"array","items":{"type":"string","maxLength":100}})"));
  GrammarMatcher matcher(*compiled);
  std::vector<uint64_t> bits(matcher.words());
  matcher.accept_text("[\"a");
  matcher.mask(bits);
  const int64_t before = compiled->masks->computed();
  for (int i = 0; i < 99; ++i) {
    matcher.mask(bits);
    ASSERT_TRUE(matcher.accept('b'));
  }
  EXPECT_EQ(compiled->masks->computed(), before);
  EXPECT_FALSE(matcher.accept('c')) << "the string has 100 characters";
  EXPECT_TRUE(matcher.accept_text("\",\"c"));
  const auto other =
      cache.get(schema_of(R"({"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false})"));
  const int64_t with_other = compiled->masks->computed();  // its first mask was computed when it was compiled
  GrammarMatcher second(*other);
  second.accept_text("{\"a\":\"x");
  second.mask(bits);
  EXPECT_EQ(compiled->masks->computed(), with_other)
      << "the mask of the other grammar's string state was computed again";
}

TEST(GrammarCache, EvictsGrammarsAboveItsBound) {
  GrammarCache cache([] { return testing::small_vocabulary(); }, GrammarBounds{.grammar_bytes = 200'000, .limits = {}});
  const auto integer = [&] { return cache.get(schema_of(R"({"type":"integer"})"))->grammar; };
  const auto fill = [&] {
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(cache.get(regex_of("[a-z]{" + std::to_string(i) + "}x")).ok());
    EXPECT_LT(cache.bytes(), 300'000u);
  };
  auto held = integer();
  EXPECT_EQ(integer(), held);
  fill();
  EXPECT_EQ(integer(), held) << "it is in use";
  const std::weak_ptr<const Grammar> kept = held;
  held.reset();
  EXPECT_FALSE(kept.expired());
  fill();
  EXPECT_TRUE(kept.expired());
}

}  // namespace
}  // namespace millrace
