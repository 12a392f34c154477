// Each step of a compilation counts its work, so that the clock is read often enough: with no time left, work below
// 16384 steps succeeds, and more does not. And memory of each step is charged before it is used.
#include <gtest/gtest.h>

#include <ctime>
#include <functional>

#include "text/grammar/key_tree.h"
#include "text/grammar/nfa.h"
#include "text/grammar/structure.h"
#include "text/grammar/tick_ranges.h"
#include "text/grammar/wide_dfa_test.h"

namespace millrace {
namespace {

using Compile = std::function<bool(const GrammarLimits&)>;

// Whether it succeeds although the time is over, since the clock is not read.
bool unnoticed(const Compile& compile) {
  CompileBudget budget({.seconds = 0});
  GrammarLimits limits;
  limits.budget = &budget;
  EXPECT_TRUE(budget.check().ok()) << "the clock begins";
  const double begin = static_cast<double>(clock());
  while (static_cast<double>(clock()) <= begin) {
  }
  const bool ok = compile(limits);
  EXPECT_NE(ok, !budget.check(0).ok()) << "the error stays";
  return ok;
}

// One class, so many states in a circle.
Dfa round_dfa(int32_t states) {
  Dfa dfa;
  dfa.accepting.assign(static_cast<size_t>(states), 1);
  dfa.ticks.assign(static_cast<size_t>(states), 0);
  dfa.calls.resize(static_cast<size_t>(states));
  for (int32_t s = 0; s < states; ++s) dfa.next.push_back((s + 1) % states);
  return dfa;
}

TEST(CompileClock, OfProducts) {
  const auto product = [](int32_t states) {
    return [states](const GrammarLimits& limits) {
      return combine(testing::wide_dfa(states, 1), round_dfa(1), DfaProduct::both, limits, "x").ok();
    };
  };
  EXPECT_TRUE(unnoticed(product(25))) << "256 steps for each pair, and as many where dead states are removed";
  EXPECT_FALSE(unnoticed(product(40)));
}

TEST(CompileClock, OfAutomata) {
  const auto text = [](size_t bytes) {
    return [bytes](const GrammarLimits& limits) {
      GrammarSpec spec;
      return make_dfa(spec, spec.bytes(std::string(bytes, 'a')), limits, "x").ok();
    };
  };
  EXPECT_TRUE(unnoticed(text(1000)));
  EXPECT_FALSE(unnoticed(text(6000)));
}

TEST(CompileClock, OfWideAutomata) {
  const auto repeated = [](int32_t bytes) {
    return [bytes](const GrammarLimits& limits) {
      GrammarSpec spec;
      std::string members;
      for (int32_t b = 0; b < bytes; ++b) members += static_cast<char>(b);
      const ExprId each = spec.byte_set(members);
      return make_dfa(spec, spec.repeat(each, 100, 100), limits, "x").ok();
    };
  };
  EXPECT_TRUE(unnoticed(repeated(20))) << "edges are looked at one by one";
  EXPECT_FALSE(unnoticed(repeated(200)));
}

TEST(CompileClock, OfExpressions) {
  const auto parts = [](size_t n) {
    return [n](const GrammarLimits& limits) {
      GrammarSpec spec;
      const ExprId none = spec.bytes("");
      return make_nfa(spec, spec.choice(std::vector<ExprId>(n, none)), limits, "x").ok();
    };
  };
  EXPECT_TRUE(unnoticed(parts(5000)));
  EXPECT_FALSE(unnoticed(parts(20'000)));
}

TEST(CompileClock, OfTicks) {
  const auto chain = [](int32_t states) {
    return [states](const GrammarLimits& limits) {
      std::vector<uint8_t> accepting(static_cast<size_t>(states), 0);
      accepting.back() = 1;
      std::vector<TickEdge> edges;
      for (int32_t s = 0; s + 1 < states; ++s) edges.push_back({s, s + 1, 1});
      return tick_ranges(accepting, edges, limits.budget).ok();
    };
  };
  EXPECT_TRUE(unnoticed(chain(2000))) << "four steps for each state and each edge";
  EXPECT_FALSE(unnoticed(chain(2100)));
}

TEST(CompileClock, OfKeys) {
  const auto keys = [](size_t bytes) {
    return [bytes](const GrammarLimits& limits) {
      std::vector<std::string> all;
      for (char c = 'a'; c < 'a' + 20; ++c) all.push_back(std::string(bytes, '.') + c);
      return make_key_tree(all, std::string(all.size(), '?'), limits.budget).ok();
    };
  };
  EXPECT_TRUE(unnoticed(keys(300))) << "twenty members before and after each byte";
  EXPECT_FALSE(unnoticed(keys(500)));
}

TEST(CompileClock, OfTriggers) {
  const auto triggers = [](int n) {
    return [n](const GrammarLimits& limits) {
      GrammarSpec spec;
      std::vector<Trigger> all;
      for (int i = 0; i < n; ++i) all.push_back({std::string(999, 'a') + static_cast<char>('b' + i), -1});
      return triggered_text(spec, all, true, false, limits.budget).ok();
    };
  };
  EXPECT_TRUE(unnoticed(triggers(3))) << "each is looked for in each";
  EXPECT_FALSE(unnoticed(triggers(5)));
}

TEST(CompileCharges, OneByteMoreThanTheBoundIsRefused) {
  CompileBudget budget({.bytes = 10});
  BudgetShare share(&budget);
  EXPECT_TRUE(share.resize(10).ok());
  EXPECT_EQ(budget.peak_bytes(), 10);
  EXPECT_FALSE(share.resize(11).ok());
  EXPECT_EQ(budget.peak_bytes(), 11);
  EXPECT_EQ(budget.held_bytes(), 11);
  CompileBudget other({.bytes = 10});
  BudgetShare shrinks(&other);
  EXPECT_TRUE(shrinks.resize(10).ok());
  EXPECT_TRUE(shrinks.resize(9).ok());
  EXPECT_TRUE(shrinks.grow(1).ok());
  EXPECT_TRUE(shrinks.resize(10).ok());
  EXPECT_EQ(other.held_bytes(), 10);
  EXPECT_EQ(other.peak_bytes(), 10);
}

TEST(CompileCharges, OfTicksAreForStatesAndEdges) {
  CompileBudget budget;
  std::vector<uint8_t> accepting(1000, 1);
  std::vector<TickEdge> edges(3000);
  ASSERT_TRUE(tick_ranges(accepting, edges, &budget).ok());
  EXPECT_EQ(budget.peak_bytes(), 1000 * 96 + 3000 * 80);
  EXPECT_EQ(budget.held_bytes(), 0);
}

TEST(CompileCharges, OfTriggersAreForTheirTree) {
  CompileBudget budget;
  GrammarSpec spec;
  ASSERT_TRUE(triggered_text(spec, {{std::string(2000, 'a'), -1}}, true, false, &budget).ok());
  constexpr int64_t kNode = 256 * sizeof(int32_t);
  EXPECT_GE(budget.peak_bytes(), 2 * 2000 * kNode);
  EXPECT_LE(budget.peak_bytes(), 2 * 2100 * kNode);
  const ExprId body = static_cast<ExprId>(spec.size()) - 1;
  EXPECT_EQ(budget.held_bytes(), spec.at(body).dfa->bytes()) << "the automaton stays";
}

// Copies of repeated parts are tracked at up to four levels, each with a mark for each state.
TEST(CompileCharges, OfAutomataAreForTheMarksOfCopies) {
  GrammarSpec spec;
  ExprId at = spec.bytes(std::string(500, 'a'));
  for (int i = 0; i < 4; ++i) at = spec.sequence({spec.never(), spec.repeat(at, 0, 3)});
  CompileBudget budget;
  GrammarLimits limits;
  limits.budget = &budget;
  int64_t bytes = 0, states = 0;
  {
    const auto nfa = make_nfa(spec, at, limits, "x");
    ASSERT_TRUE(nfa.ok());
    ASSERT_EQ(nfa->levels, 4);
    bytes = nfa->bytes(), states = std::ssize(nfa->states);
    ASSERT_GT(states, 500 * 81);
  }
  CompileBudget whole;
  limits.budget = &whole;
  const auto dfa = make_dfa(spec, at, limits, "x");
  ASSERT_TRUE(dfa.ok());
  ASSERT_LE(dfa->size(), 2);
  const int64_t marks = states * (4 + 4 * 8);
  EXPECT_GE(whole.peak_bytes(), bytes + marks);
  EXPECT_LE(whole.peak_bytes(), bytes + marks + 20'000);
}

// 2^12 sets of up to 13 states each are kept while the automaton is built.
TEST(CompileCharges, OfAutomataAreForTheirSetsOfStates) {
  CompileBudget budget;
  GrammarLimits limits;
  limits.budget = &budget;
  GrammarSpec spec;
  const ExprId any = spec.byte_set("ab");
  const auto dfa = make_dfa(
      spec, spec.sequence({spec.repeat(any, 0, kNoLimit), spec.bytes("a"), spec.repeat(any, 11, 11)}), limits, "x");
  ASSERT_TRUE(dfa.ok());
  ASSERT_GE(dfa->size(), 4096);
  EXPECT_GE(budget.peak_bytes(), dfa->bytes() + int64_t{dfa->size()} * (16 + 6 * 4));
  EXPECT_EQ(budget.held_bytes(), dfa->bytes());
}

TEST(EmptyAutomata, AcceptNothing) {
  const Dfa none;
  EXPECT_FALSE(none.accepts(""));
  EXPECT_FALSE(none.accepts("a"));
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.size(), 0);
  EXPECT_TRUE(round_dfa(1).accepts(""));
  EXPECT_TRUE(round_dfa(1).accepts("aaa"));
}

}  // namespace
}  // namespace millrace
