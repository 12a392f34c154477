// How deeply expressions may be nested, what they charge, and how characters are spelled in JSON.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "text/grammar/nfa.h"

namespace millrace {
namespace {

// So many forms of one kind around a text.
ExprId nested(GrammarSpec& spec, Expr::Kind kind, int levels, std::string_view text = "a") {
  ExprId at = spec.bytes(text);
  const ExprId none = spec.bytes("");
  for (int i = 0; i < levels; ++i) {
    Expr expr;
    expr.kind = kind;
    expr.min = expr.max = 1;
    expr.parts = {at};
    if (kind == Expr::Kind::sequence) expr.parts = {none, at};
    if (kind == Expr::Kind::list) expr.parts = {none, at}, expr.text = "1";
    if (kind == Expr::Kind::keyed) expr.parts = {none, none, at}, expr.text = "1", expr.keys = {"k"};
    at = spec.add(std::move(expr));
  }
  return at;
}

TEST(NfaDepth, OfEveryFormIsLimited) {
  for (const Expr::Kind kind :
       {Expr::Kind::sequence, Expr::Kind::choice, Expr::Kind::repeat, Expr::Kind::list, Expr::Kind::keyed}) {
    for (const int64_t depth : {0, 3, 10}) {
      GrammarLimits limits;
      limits.depth = depth;
      GrammarSpec spec;
      EXPECT_TRUE(make_nfa(spec, nested(spec, kind, static_cast<int>(4 * depth)), limits, "x").ok());
      const auto refused = make_nfa(spec, nested(spec, kind, static_cast<int>(4 * depth) + 1), limits, "rule 'x'");
      ASSERT_FALSE(refused.ok()) << static_cast<int>(kind) << " " << depth;
      EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
      EXPECT_EQ(refused.error().message, "rule 'x': nested too deeply");
    }
  }
}

TEST(NfaDepth, ARepeatedPartOfAnyDepthIsRefusedWithoutFollowingIt) {
  GrammarSpec spec;
  const ExprId deep = nested(spec, Expr::Kind::sequence, 150'000, "");
  const auto refused = make_nfa(spec, spec.repeat(deep, 1, 2), {}, "x");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "x: nested too deeply");
}

TEST(NfaDepth, APartInManyPlacesIsLookedAtOnce) {
  GrammarSpec spec;  // 2^60 places
  ExprId at = spec.bytes("");
  for (int i = 0; i < 60; ++i) at = spec.sequence({at, at});
  const auto nfa = make_nfa(spec, spec.repeat(at, 0, 0), {}, "x");
  ASSERT_TRUE(nfa.ok());
  EXPECT_EQ(nfa->states.size(), 2u);
}

TEST(NfaDepth, WhetherAPartMayBeEmptySavesItsCopies) {
  const auto states = [](auto make) {
    GrammarSpec spec;
    const ExprId part = make(spec);
    return make_nfa(spec, spec.repeat(part, 5, kNoLimit), {}, "x")->states.size();
  };
  const auto dfa = [](std::string_view text) {
    GrammarSpec own;
    return std::make_shared<const Dfa>(make_dfa(own, own.bytes(text), {}, "x").value());
  };
  // The first and the last, the loop, and the part once where it may be empty, six times with five ends where not.
  EXPECT_EQ(states([](GrammarSpec& s) { return s.bytes(""); }), 3u);
  EXPECT_EQ(states([](GrammarSpec& s) { return s.bytes("a"); }), 8u);
  EXPECT_EQ(states([](GrammarSpec& s) { return s.sequence({s.bytes(""), s.bytes("")}); }), 5u);
  EXPECT_EQ(states([](GrammarSpec& s) { return s.sequence({s.bytes(""), s.bytes("a")}); }), 20u);
  EXPECT_EQ(states([](GrammarSpec& s) { return s.choice({s.bytes("a"), s.bytes("")}); }), 7u);
  EXPECT_EQ(states([](GrammarSpec& s) { return s.choice({s.bytes("a"), s.bytes("b")}); }), 32u);
  EXPECT_EQ(states([](GrammarSpec& s) { return s.tick(); }), 14u);
  // A repetition may be empty if it may have no copy, or if its part may be empty.
  const auto next_to = [](GrammarSpec& s, ExprId part) { return s.sequence({part, s.bytes("")}); };
  EXPECT_EQ(states([&](GrammarSpec& s) { return next_to(s, s.repeat(s.bytes("a"), 0, 1)); }), 6u);
  EXPECT_EQ(states([&](GrammarSpec& s) { return next_to(s, s.repeat(s.bytes(""), 1, 1)); }), 6u);
  EXPECT_EQ(states([&](GrammarSpec& s) { return next_to(s, s.repeat(s.bytes("a"), 1, 1)); }), 26u);
  EXPECT_EQ(states([&](GrammarSpec& s) { return s.dfa(dfa("")); }), 4u);
  EXPECT_EQ(states([&](GrammarSpec& s) { return s.dfa(dfa("a")); }), 20u);
}

TEST(NfaBudget, IsChargedForStatesAndEdges) {
  GrammarSpec spec;
  const ExprId expr =
      spec.choice({spec.bytes(std::string(5000, 'a')), spec.call(0), spec.repeat(spec.bytes("b"), 2, 9)});
  CompileBudget budget;
  GrammarLimits limits;
  limits.budget = &budget;
  {
    const auto nfa = make_nfa(spec, expr, limits, "x");
    ASSERT_TRUE(nfa.ok());
    EXPECT_GE(nfa->bytes(), static_cast<int64_t>(5000 * (sizeof(Nfa::State) + sizeof(NfaEdge))));
    EXPECT_EQ(nfa->share.bytes(), nfa->bytes());
    EXPECT_EQ(budget.held_bytes(), nfa->bytes());
  }
  EXPECT_EQ(budget.held_bytes(), 0);
  CompileBudget little({.bytes = 100'000});
  limits.budget = &little;
  const auto refused = make_nfa(spec, expr, limits, "x");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "grammar: compiling it takes more than 0.0954 MiB; simplify it");
}

TEST(NfaSpelling, OfControlCharactersInJson) {
  GrammarSpec spec;
  for (uint32_t c = 0; c < 0x22; ++c) {
    const auto dfa = make_dfa(spec, spec.chars({{c, c}}, Spelling::json), {}, "x");
    ASSERT_TRUE(dfa.ok());
    static const std::map<uint32_t, char> kShort = {{8, 'b'}, {9, 't'}, {10, 'n'}, {12, 'f'}, {13, 'r'}};
    const bool control = c < 0x20, brief = kShort.contains(c);
    for (const auto& [code, letter] : kShort)
      EXPECT_EQ(dfa->accepts(std::string("\\") + letter), code == c) << c << " " << letter;
    EXPECT_EQ(dfa->accepts(std::string(1, static_cast<char>(c))), !control) << c;
    for (uint32_t other = 0; other < 0x40; ++other) {
      EXPECT_EQ(dfa->accepts(fmt::format("\\u{:04x}", other)), other == c && control && !brief) << c << " " << other;
      EXPECT_EQ(dfa->accepts(fmt::format("\\u{:04X}", other)), other == c && control && !brief) << c << " " << other;
    }
  }
  const auto quote = make_dfa(spec, spec.chars({{'"', '"'}, {'/', '/'}, {'\\', '\\'}}, Spelling::json), {}, "x");
  for (const char* text : {"\\\"", "/", "\\\\"}) EXPECT_TRUE(quote->accepts(text)) << text;
  for (const char* text : {"\"", "\\/", "\\", "\\u0022", "\\u005c"}) EXPECT_FALSE(quote->accepts(text)) << text;
}

}  // namespace
}  // namespace millrace
