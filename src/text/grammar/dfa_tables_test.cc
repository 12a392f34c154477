// Automata given as tables: their products against the definition, what remains of them, and what they charge.
#include <gtest/gtest.h>

#include <random>

#include "text/grammar/dfa.h"
#include "text/grammar/wide_dfa_test.h"

namespace millrace {
namespace {

// Bytes on both sides of every place where a table may start a new class.
constexpr uint8_t kEdgeBytes[] = {0, 1, 2, 'a', 'b', 'c', 254, 255};

Dfa random_table(std::mt19937& random) {
  const size_t states = 1 + random() % 5;
  Dfa dfa;
  int32_t last = 0;
  for (int byte = 1; byte < 256; ++byte) {
    const bool may = byte == 1 || byte == 2 || byte == 'b' || byte == 'c' || byte == 255;
    if (may && random() % 2 == 0) ++last;
    dfa.class_of[static_cast<size_t>(byte)] = static_cast<uint8_t>(last);
  }
  dfa.classes = last + 1;
  dfa.calls.resize(states);
  for (size_t s = 0; s < states; ++s) {
    dfa.accepting.push_back(random() % 4 == 0);
    dfa.ticks.push_back(random() % 2 == 0);
    for (int32_t c = 0; c < dfa.classes; ++c)
      dfa.next.push_back(
          static_cast<int32_t>(random() % (states + 2)) - 2 < 0 ? -1 : static_cast<int32_t>(random() % states));
  }
  return dfa;
}

// All texts of up to three of the bytes.
std::vector<std::string> texts_of_edge_bytes() {
  std::vector<std::string> out{""};
  for (size_t i = 0; out[i].size() < 3; ++i)
    for (const uint8_t byte : kEdgeBytes) out.push_back(out[i] + static_cast<char>(byte));
  return out;
}

// The state after the text; -1: none.
int32_t state_after(const Dfa& dfa, std::string_view text) {
  int32_t state = 0;
  for (const char c : text)
    if (state >= 0) state = dfa.step(state, static_cast<uint8_t>(c));
  return state;
}

// Every edge leads to a state from which the end is reachable, and states are numbered as they are found.
void expect_trimmed(const Dfa& dfa, uint32_t seed) {
  const auto classes = static_cast<size_t>(dfa.classes);
  std::vector<uint8_t> live = dfa.accepting;
  for (bool more = true; more;) {
    more = false;
    for (size_t at = 0; at < dfa.next.size(); ++at)
      if (dfa.next[at] >= 0 && live[static_cast<size_t>(dfa.next[at])] && !live[at / classes])
        live[at / classes] = 1, more = true;
  }
  int32_t found = 0;
  for (const int32_t to : dfa.next) {
    ASSERT_GE(to, -1) << "seed " << seed;
    if (to < 0) continue;
    ASSERT_TRUE(live[static_cast<size_t>(to)]) << "seed " << seed << " state " << to;
    ASSERT_LE(to, found + 1) << "seed " << seed;
    found = std::max(found, to);
  }
  ASSERT_EQ(found + 1, dfa.size()) << "seed " << seed;
  ASSERT_EQ(dfa.ticks.size(), dfa.accepting.size());
  ASSERT_EQ(dfa.calls.size(), dfa.accepting.size());
}

TEST(DfaTables, ProductsAcceptWhatTheirDefinitionSays) {
  const std::vector<std::string> texts = texts_of_edge_bytes();
  for (uint32_t seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    const Dfa a = random_table(random), b = random_table(random);
    for (const DfaProduct product : {DfaProduct::both, DfaProduct::first_only}) {
      const auto out = combine(a, b, product, {}, "x");
      ASSERT_TRUE(out.ok());
      for (const std::string& text : texts) {
        const bool expected = a.accepts(text) && b.accepts(text) == (product == DfaProduct::both);
        ASSERT_EQ(out->accepts(text), expected) << "seed " << seed << " text of " << text.size();
        const int32_t state = state_after(*out, text);
        if (state < 0) continue;
        ASSERT_EQ(out->ticks[static_cast<size_t>(state)], a.ticks[static_cast<size_t>(state_after(a, text))]);
      }
      expect_trimmed(*out, seed);
      for (size_t byte = 1; byte < 256; ++byte)
        ASSERT_EQ(out->class_of[byte] != out->class_of[byte - 1],
                  a.class_of[byte] != a.class_of[byte - 1] || b.class_of[byte] != b.class_of[byte - 1])
            << "seed " << seed << " byte " << byte;
      ASSERT_EQ(out->classes, out->class_of[255] + 1);
    }
  }
}

// A circle of so many states, all bytes lead on; the first one is the end.
Dfa circle(int32_t states, bool ends = true) {
  Dfa dfa;
  dfa.calls.resize(static_cast<size_t>(states));
  for (int32_t s = 0; s < states; ++s) {
    dfa.accepting.push_back(s == 0 && ends);
    dfa.ticks.push_back(0);
    dfa.next.push_back((s + 1) % states);
  }
  return dfa;
}

TEST(DfaTables, ProductsOfCircles) {
  const auto both = combine(circle(6), circle(4), DfaProduct::both, {}, "x");
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->size(), 12);
  const auto first = combine(circle(6), circle(4), DfaProduct::first_only, {}, "x");
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->size(), 12);
  for (size_t n = 0; n < 40; ++n) {
    EXPECT_EQ(both->accepts(std::string(n, 'a')), n % 12 == 0);
    EXPECT_EQ(first->accepts(std::string(n, 'a')), n % 6 == 0 && n % 4 != 0);
  }
  const auto nothing = combine(circle(3, false), circle(2), DfaProduct::both, {}, "x");
  ASSERT_TRUE(nothing.ok());
  EXPECT_TRUE(nothing->empty());
  EXPECT_EQ(nothing->next, std::vector<int32_t>{-1}) << "nothing leads on from a state without an end";
  EXPECT_FALSE(both->empty());
}

TEST(DfaTables, ProductsAreLimitedInPairs) {
  GrammarLimits limits;
  limits.dfa_states = 42;
  EXPECT_TRUE(combine(circle(6), circle(7), DfaProduct::both, limits, "x").ok());
  limits.dfa_states = 41;
  const auto refused = combine(circle(6), circle(7), DfaProduct::both, limits, "the pattern");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(refused.error().message, "the pattern: too large, its automaton has more than 41 states; simplify it");
}

TEST(DfaTables, ProductsChargeAllTheirTables) {
  constexpr int32_t kStates = 1000;
  const Dfa wide = testing::wide_dfa(kStates, 1);
  CompileBudget budget;
  GrammarLimits limits;
  limits.budget = &budget;
  const auto out = combine(wide, circle(1), DfaProduct::both, limits, "x");
  ASSERT_TRUE(out.ok());
  const int64_t table = std::ssize(wide.next) * 4;
  EXPECT_GE(budget.peak_bytes(), 3 * table) << "the pairs' table, its reverse, and the table without dead states";
  EXPECT_LE(budget.peak_bytes(), 4 * table);
  EXPECT_EQ(budget.held_bytes(), out->bytes());
  EXPECT_EQ(out->share.bytes(), out->bytes());
}

// Each pair is charged with the entry that finds it, besides the tables.
TEST(DfaTables, ProductsChargeForTheirPairs) {
  CompileBudget budget;
  GrammarLimits limits;
  limits.budget = &budget;
  const auto out = combine(circle(63), circle(65), DfaProduct::both, limits, "x");
  ASSERT_TRUE(out.ok());
  ASSERT_EQ(out->size(), 4095);
  const int64_t states = 4096, table = out->bytes(), reverse = states * 21;
  EXPECT_GE(budget.peak_bytes(), 2 * table + reverse - 100 + 64 * 4000);
  EXPECT_LE(budget.peak_bytes(), 2 * table + reverse + 100 + 64 * 4200);
}

}  // namespace
}  // namespace millrace
