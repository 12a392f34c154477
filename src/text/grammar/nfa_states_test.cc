// How many states and edges each form of an expression takes, and the limits on states, nesting and memory.
#include <gtest/gtest.h>

#include "text/grammar/key_tree.h"
#include "text/grammar/nfa.h"

namespace millrace {
namespace {

using MakePart = ExprId (*)(GrammarSpec&);

struct Counted {
  const char* name;
  MakePart make;
  size_t states, edges;  // states: and two, the first and the last
};

ExprId keyed_abc(GrammarSpec& s, bool others) {
  KeyedMembers list{s.bytes(","), s.bytes("<"), {}, others ? s.bytes("o") : -1, false};
  for (const char* key : {"a", "bc", "bd"}) list.members.push_back({key, s.bytes("1"), false});
  return s.keyed(std::move(list));
}

const Counted kCounted[] = {
    {"never", [](GrammarSpec& s) { return s.never(); }, 0, 0},
    {"no text", [](GrammarSpec& s) { return s.bytes(""); }, 0, 1},
    {"a byte", [](GrammarSpec& s) { return s.bytes("a"); }, 0, 1},
    {"a text", [](GrammarSpec& s) { return s.bytes("abcd"); }, 3, 4},
    {"a set", [](GrammarSpec& s) { return s.byte_set("axz"); }, 0, 3},
    {"two bytes of UTF-8",
     [](GrammarSpec& s) {
       return s.chars({{0xE9, 0xE9}}, Spelling::utf8);
     },
     1, 2},
    {"all characters", [](GrammarSpec& s) { return s.chars(any_char(), Spelling::utf8); }, 18, 27},
    {"a sequence",
     [](GrammarSpec& s) {
       return s.sequence({s.bytes("a"), s.bytes("b"), s.bytes("c")});
     },
     3, 4},
    {"a choice",
     [](GrammarSpec& s) {
       return s.choice({s.bytes("a"), s.bytes("b"), s.bytes("c")});
     },
     6, 9},
    {"optional", [](GrammarSpec& s) { return s.optional(s.bytes("a")); }, 1, 3},
    {"exactly none", [](GrammarSpec& s) { return s.repeat(s.bytes("a"), 0, 0); }, 0, 1},
    {"exactly three", [](GrammarSpec& s) { return s.repeat(s.bytes("a"), 3, 3); }, 3, 4},
    {"two to five", [](GrammarSpec& s) { return s.repeat(s.bytes("a"), 2, 5); }, 5, 9},
    {"any number", [](GrammarSpec& s) { return s.repeat(s.bytes("a"), 0, kNoLimit); }, 1, 3},
    {"three and more", [](GrammarSpec& s) { return s.repeat(s.bytes("a"), 3, kNoLimit); }, 4, 6},
    {"three of an empty text", [](GrammarSpec& s) { return s.repeat(s.bytes(""), 3, kNoLimit); }, 1, 3},
    {"a call", [](GrammarSpec& s) { return s.call(0); }, 0, 1},
    {"a tick", [](GrammarSpec& s) { return s.tick(); }, 1, 2},
    {"the start", [](GrammarSpec& s) { return s.begin(); }, 0, 1},
    {"the end", [](GrammarSpec& s) { return s.end(); }, 0, 1},
    {"an automaton",
     [](GrammarSpec& s) {
       GrammarSpec own;
       return s.dfa(std::make_shared<const Dfa>(make_dfa(own, own.bytes("ab"), {}, "x").value()));
     },
     3, 4},
    {"a list",
     [](GrammarSpec& s) {
       return s.list(s.bytes(","), {s.bytes("a"), s.bytes("b"), s.bytes("c")}, "1?*");
     },
     14, 19},
    {"a list that is not empty", [](GrammarSpec& s) { return s.list(s.bytes(","), {s.bytes("a")}, "1", true); }, 6, 6},
    {"members with keys", [](GrammarSpec& s) { return keyed_abc(s, false); }, 14, 20},
    {"and others", [](GrammarSpec& s) { return keyed_abc(s, true); }, 17, 28},
};

Result<Nfa> nfa_of(const Counted& one, const GrammarLimits& limits = {}) {
  GrammarSpec spec;
  spec.add_rule("rule");
  const ExprId expr = one.make(spec);
  return make_nfa(spec, expr, limits, "rule 'x'");
}

TEST(NfaStates, OfEachForm) {
  for (const Counted& one : kCounted) {
    const auto nfa = nfa_of(one);
    ASSERT_TRUE(nfa.ok()) << one.name;
    EXPECT_EQ(nfa->states.size(), one.states + 2) << one.name;
    EXPECT_EQ(nfa->edges.size(), one.edges) << one.name;
    EXPECT_EQ(nfa->start, 0) << one.name;
    EXPECT_EQ(nfa->accept, 1) << one.name;
  }
}

TEST(NfaStates, AreLimited) {
  for (const Counted& one : kCounted) {
    GrammarLimits limits;
    limits.nfa_states = static_cast<int64_t>(one.states) + 2;
    EXPECT_TRUE(nfa_of(one, limits).ok()) << one.name;
    limits.nfa_states = static_cast<int64_t>(one.states) + 1;
    const auto refused = nfa_of(one, limits);
    ASSERT_FALSE(refused.ok()) << one.name;
    EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
    EXPECT_EQ(refused.error().message, "rule 'x': too large, it needs more than " + std::to_string(one.states + 1) +
                                           " states; lower its repetitions");
  }
}

TEST(NfaStates, LongTextsAreRefusedBeforeTheyAreAdded) {
  const auto fits = [](size_t bytes, int64_t states) {
    GrammarSpec spec;
    GrammarLimits limits;
    limits.nfa_states = states;
    return make_nfa(spec, spec.bytes(std::string(bytes, 'a')), limits, "x").ok();
  };
  EXPECT_TRUE(fits(10, 11));
  EXPECT_FALSE(fits(10, 10));
  EXPECT_TRUE(fits(65536, 65537));
  EXPECT_FALSE(fits(65536, 65536));
  EXPECT_TRUE(fits(65537, 65539)) << "a text this long asks for a state per byte at once";
  EXPECT_FALSE(fits(65537, 65537));
}

TEST(NfaStates, CopiesOfRepeatedParts) {
  GrammarSpec spec;
  const ExprId inner = spec.sequence({spec.repeat(spec.bytes("ab"), 0, 3), spec.bytes("c")});
  const auto nfa = make_nfa(spec, spec.repeat(inner, 2, kNoLimit), {}, "x");
  ASSERT_TRUE(nfa.ok());
  EXPECT_EQ(nfa->levels, 2);
  ASSERT_EQ(nfa->copies.size(), 4u) << "the outer ones, and those in each of its three copies";
  EXPECT_TRUE(nfa->copies[0].open);
  EXPECT_EQ(nfa->copies[0].level, 0);
  EXPECT_EQ(nfa->copies[0].parent, -1);
  EXPECT_EQ(nfa->copies[0].base, 2);
  EXPECT_EQ(nfa->copies[0].size, 9) << "its end, two of the sequence, and three copies of two";
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_FALSE(nfa->copies[i].open);
    EXPECT_EQ(nfa->copies[i].level, 1);
    EXPECT_EQ(nfa->copies[i].parent, 0);
    EXPECT_EQ(nfa->copies[i].size, 2);
    EXPECT_EQ(nfa->copies[i].base - nfa->copies[1].base, static_cast<int32_t>(9 * (i - 1)));
  }
}

// Of parts repeated within repeated parts, the four outermost are tracked.
TEST(NfaStates, CopiesOfDeeplyRepeatedParts) {
  for (int depth = 1; depth <= 6; ++depth) {
    GrammarSpec spec;
    ExprId at = spec.bytes("a");
    for (int i = 0; i < depth; ++i) at = spec.sequence({spec.repeat(at, 0, 2), spec.bytes("b")});
    const auto nfa = make_nfa(spec, at, {}, "x");
    ASSERT_TRUE(nfa.ok());
    EXPECT_EQ(nfa->levels, std::min(depth, 4));
    size_t copies = 0, of_level = 1;
    for (int level = 0; level < std::min(depth, 4); ++level, of_level *= 2) copies += of_level;
    EXPECT_EQ(nfa->copies.size(), copies) << "twice as many of each level as of the one around it";
    for (const NfaCopies& one : nfa->copies) {
      EXPECT_LT(one.level, 4);
      EXPECT_GT(one.size, 0);
    }
    const auto dfa = make_dfa(spec, at, {}, "x");
    ASSERT_TRUE(dfa.ok());
    EXPECT_TRUE(dfa->accepts("b"));
    EXPECT_FALSE(dfa->accepts("a"));
    EXPECT_TRUE(dfa->accepts("aa" + std::string(static_cast<size_t>(depth), 'b')));
  }
}

TEST(NfaStates, OfManyKeysAreRefusedByTheirEdges) {
  std::vector<std::string> keys;
  for (int i = 0; i < 2048; ++i) keys.push_back({static_cast<char>(i % 256), static_cast<char>(i / 256)});
  const std::string counts(keys.size(), '?');
  const auto tree = make_key_tree(keys, counts, nullptr);
  ASSERT_TRUE(tree.ok());
  const auto quarter = static_cast<int64_t>(tree->edges.size() / 4);
  ASSERT_GT(quarter, 70'000);
  ASSERT_GT(quarter, 3 * int64_t{tree->states});
  const auto fits = [&](int64_t states) {
    GrammarSpec spec;
    GrammarLimits limits;
    limits.nfa_states = states;
    KeyedMembers list{spec.bytes(","), spec.bytes(""), {}, -1, false};
    const ExprId content = spec.bytes("1");
    for (const std::string& key : keys) list.members.push_back({key, content, false});
    const ExprId expr = spec.keyed(std::move(list));
    return make_nfa(spec, expr, limits, "x").ok();
  };
  EXPECT_TRUE(fits(quarter + 2));
  EXPECT_FALSE(fits(quarter + 1));
}

}  // namespace
}  // namespace millrace
