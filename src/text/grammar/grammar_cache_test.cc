// What a GrammarCache retains, evicts and rejects.
#include <gtest/gtest.h>

#include <future>

#include "text/grammar/constraint.h"

namespace millrace {
namespace {

std::vector<std::string> bytes_only() {
  std::vector<std::string> pieces;
  for (int byte = 0; byte < 256; ++byte) pieces.push_back(std::string(1, static_cast<char>(byte)));
  return pieces;
}

Constraint regex(std::string text) {
  Constraint constraint;
  constraint.kind = Constraint::Kind::regex;
  constraint.text = std::move(text);
  return constraint;
}

const Constraint kHard = regex("(a|b)*a(a|b){17}");  // an automaton with 2^18 states

TEST(GrammarCache, GrammarsInUseAreNotEvicted) {
  GrammarCache cache(bytes_only, {.grammar_bytes = 1});
  EXPECT_FALSE(cache.find(regex("a")));
  auto held = cache.get(regex("a"));
  ASSERT_TRUE(held.ok());
  ASSERT_TRUE(cache.get(regex("b")).ok());
  ASSERT_TRUE(cache.get(regex("c")).ok());
  EXPECT_FALSE(cache.find(regex("b"))) << "there is space only for the latest one";
  EXPECT_TRUE(cache.find(regex("c")));
  auto again = cache.find(regex("a"));
  ASSERT_TRUE(again && again->ok());
  EXPECT_EQ((*again)->grammar, held->grammar);
  EXPECT_EQ((*again)->id, held->id);
  again.reset();
  held = Error::user("let go");
  ASSERT_TRUE(cache.get(regex("d")).ok());
  EXPECT_FALSE(cache.find(regex("a")));
}

TEST(GrammarCache, AGrammarComesWithTheMaskOfItsFirstStep) {
  GrammarCache cache(bytes_only);
  const auto made = cache.get(regex("[ab]c"));
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->masks->computed(), 1);
  GrammarMatcher matcher(*made);
  std::vector<uint64_t> bits(matcher.words());
  EXPECT_EQ(matcher.mask(bits), 2u);
  EXPECT_EQ(made->masks->computed(), 1) << "it was there already";
}

TEST(GrammarCache, GrammarsInUseAreBounded) {
  size_t one;
  {
    GrammarCache cache(bytes_only);
    ASSERT_TRUE(cache.get(regex("a")).ok());
    one = cache.bytes();
  }
  GrammarCache cache(bytes_only, {.used_bytes = 2 * one + one / 2});
  auto first = cache.get(regex("a"));
  const auto second = cache.get(regex("b"));
  ASSERT_TRUE(first.ok() && second.ok());
  const auto third = cache.get(regex("c"));
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.error().kind, ErrorKind::resource) << third.error().message;
  EXPECT_FALSE(cache.find(regex("c")));
  EXPECT_TRUE(cache.get(regex("b")).ok()) << "a cached grammar needs no additional space";
  first = Error::user("let go");
  EXPECT_TRUE(cache.get(regex("c")).ok());
}

TEST(GrammarCache, SlowErrorsAreCachedForAWhile) {
  GrammarCache cache(bytes_only);
  const auto refused = cache.get(kHard);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
  const auto known = cache.find(kHard);
  ASSERT_TRUE(known);
  EXPECT_EQ(known->error().message, refused.error().message);
  EXPECT_GT(cache.bytes(), 0u);

  GrammarCache forgetful(bytes_only, {.refusal_seconds = 0});
  EXPECT_FALSE(forgetful.get(kHard).ok());
  EXPECT_FALSE(forgetful.find(kHard));
  EXPECT_EQ(forgetful.bytes(), 0u);

  // An attempt with a shorter time limit is not conclusive, so its error is not cached.
  GrammarCache trying(bytes_only);
  EXPECT_FALSE(trying.get(kHard, {.seconds = 0.001, .cancelled = nullptr}).ok());
  EXPECT_FALSE(trying.find(kHard));
}

TEST(GrammarCache, WaitingForATurnCanBeCancelled) {
  std::promise<void> entered, open;
  GrammarCache cache(
      [&] {  // the vocabulary is loaded during a turn
        entered.set_value();
        open.get_future().wait();
        return bytes_only();
      },
      {.compiles_at_once = 1});
  auto first = std::async(std::launch::async, [&] { return cache.get(regex("a")).ok(); });
  entered.get_future().wait();
  const auto left = cache.get(regex("b"), {.seconds = 0, .cancelled = std::make_shared<std::atomic<bool>>(true)});
  ASSERT_FALSE(left.ok());
  EXPECT_EQ(left.error().kind, ErrorKind::cancelled);
  open.set_value();
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(cache.get(regex("b")).ok());
}

}  // namespace
}  // namespace millrace
