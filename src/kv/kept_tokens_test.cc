// What an evictor knows of stored tokens: their positions and sums of attention, by head, before and after a decision.
#include "kv/kept_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace millrace {
namespace {

using SlotList = std::vector<int32_t>;
using SumList = std::vector<int64_t>;

// Drops the tokens with the smallest sums.
class SmallestSums final : public TokenEvictor {
 public:
  explicit SmallestSums(int64_t queries = MassRule::kAll) : queries_(queries) {}
  int64_t budget() const override { return 3; }
  MassRule mass_rule() const override { return {.queries = queries_}; }
  void drop(const StoredTokens& stored, int64_t excess, std::vector<int32_t>& slots) const override {
    SlotList order(stored.mass.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](int32_t slot) { return stored.mass[static_cast<size_t>(slot)]; });
    slots.assign(order.begin(), order.begin() + excess);
    std::ranges::sort(slots);
    first_query = stored.first_query;
    ++asked;
  }
  mutable int32_t first_query = -1;
  mutable int asked = 0;

 private:
  int64_t queries_;
};

SumList copied(std::span<int64_t> values) { return {values.begin(), values.end()}; }
SlotList copied(std::span<const int32_t> values) { return {values.begin(), values.end()}; }

TEST(KeptTokens, KeepTheirPositionsAndSums) {
  const SmallestSums evictor;
  KeptTokens tokens;
  tokens.observe_from(7);
  EXPECT_EQ(tokens.see(5), 5);
  EXPECT_EQ(copied(tokens.positions()), (SlotList{0, 1, 2, 3, 4}));
  std::ranges::copy(SumList{5, 1, 4, 2, 3}, tokens.mass(5).begin());
  EXPECT_EQ(copied(tokens.keep(evictor, 3)), (SlotList{0, 2, 4}));
  EXPECT_EQ(evictor.first_query, 7);
  EXPECT_EQ(copied(tokens.kept()), (SlotList{0, 2, 4}));
  EXPECT_EQ(copied(tokens.positions()), (SlotList{0, 2, 4}));
  EXPECT_EQ(copied(tokens.mass()), (SumList{5, 4, 3}));
  EXPECT_EQ(tokens.evicted(), 2);
  EXPECT_EQ(tokens.see(7), 5) << "seven of the text, two of them evicted";
  EXPECT_EQ(copied(tokens.positions()), (SlotList{0, 2, 4, 5, 6}));
  EXPECT_EQ(copied(tokens.mass(5)), (SumList{5, 4, 3, 0, 0}));
  EXPECT_EQ(copied(tokens.keep(evictor, 3)), (SlotList{0, 1, 2}));
  EXPECT_EQ(tokens.evicted(), 4);
  tokens.clear();
  EXPECT_EQ(tokens.evicted(), 0);
  EXPECT_TRUE(tokens.positions().empty());
  EXPECT_TRUE(tokens.mass().empty());
  EXPECT_EQ(tokens.see(2), 2);
  EXPECT_EQ(copied(tokens.positions()), (SlotList{0, 1}));
}

TEST(KeptTokens, ThatFitTheBudgetAllStay) {
  const SmallestSums evictor;
  for (const int64_t budget : {3, 4}) {
    KeptTokens tokens;
    tokens.see(3);
    std::ranges::copy(SumList{5, 1, 4}, tokens.mass(3).begin());
    EXPECT_EQ(copied(tokens.keep(evictor, budget)), (SlotList{0, 1, 2}));
    EXPECT_EQ(copied(tokens.mass()), (SumList{5, 1, 4}));
    EXPECT_EQ(tokens.evicted(), 0);
  }
  EXPECT_EQ(evictor.asked, 0);
}

// Where only the last queries count, sums begin again after a decision.
TEST(KeptTokens, SumsOfTheLastQueriesBeginAgain) {
  const SmallestSums evictor(2);
  KeptTokens tokens;
  tokens.see(4);
  std::ranges::copy(SumList{5, 1, 4, 2}, tokens.mass(4).begin());
  EXPECT_EQ(copied(tokens.keep(evictor, 3)), (SlotList{0, 2, 3}));
  EXPECT_EQ(copied(tokens.mass()), (SumList{0, 0, 0}));
}

// [slots, heads]: even numbers are of head 0, odd ones of head 1.
TEST(KeptTokens, OfEachHeadAreItsOwn) {
  const SmallestSums evictor;
  KeptTokens tokens(2);
  tokens.reserve(8, 2, true);
  EXPECT_EQ(tokens.see(4), 4);
  EXPECT_EQ(copied(tokens.positions()), (SlotList{0, 0, 1, 1, 2, 2, 3, 3}));
  std::ranges::copy(SumList{50, 5, 20, 55, 30, 35, 40, 15}, tokens.mass(4).begin());
  EXPECT_EQ(copied(tokens.keep(evictor, 2)), (SlotList{0, 3, 1, 2}));
  EXPECT_EQ(copied(tokens.positions()), (SlotList{0, 1, 3, 2}));
  EXPECT_EQ(copied(tokens.mass()), (SumList{50, 55, 40, 35}));
  EXPECT_EQ(tokens.evicted(), 2);
  EXPECT_EQ(tokens.see(5), 3);
  EXPECT_EQ(copied(tokens.positions()), (SlotList{0, 1, 3, 2, 4, 4}));
}

// What drafted queries add counts in order, as far as they are kept.
TEST(KeptTokens, DraftedQueriesCountWhenTheyAreKept) {
  KeptTokens tokens;
  std::ranges::copy(SumList{5, 6}, tokens.mass(2).begin());
  EXPECT_EQ(copied(tokens.draft_mass(2, 4)), SumList(8, 0));
  std::ranges::copy(SumList{1, 2, 3, 4, 10, 20, 30, 40}, tokens.draft_mass().begin());
  tokens.keep_drafted();
  EXPECT_EQ(copied(tokens.mass()), (SumList{6, 8, 3}));
  tokens.keep_drafted();
  EXPECT_EQ(copied(tokens.mass()), (SumList{16, 28, 33, 40}));
  EXPECT_EQ(copied(tokens.draft_mass(1, 5)), SumList(5, 0)) << "zero again, and fewer";
  std::ranges::copy(SumList{1, 1, 1, 1, 7}, tokens.draft_mass().begin());
  tokens.keep_drafted();
  EXPECT_EQ(copied(tokens.mass()), (SumList{17, 29, 34, 41, 7}));
}

TEST(KeptTokens, SlotsMayBeChosenElsewhere) {
  KeptTokens tokens;
  tokens.see(6);
  const SlotList chosen = {1, 4};
  EXPECT_EQ(copied(tokens.keep_slots(chosen)), chosen);
  EXPECT_EQ(copied(tokens.kept()), chosen);
  EXPECT_EQ(copied(tokens.positions()), (SlotList{1, 4}));
  EXPECT_TRUE(tokens.mass().empty()) << "no evictor observes attention";
  EXPECT_EQ(tokens.evicted(), 4);
  std::ranges::copy(SumList{3, 9}, tokens.mass(2).begin());
  const SlotList last = {1};
  tokens.keep_slots(last);
  EXPECT_EQ(copied(tokens.mass()), SumList{0});
  EXPECT_EQ(copied(tokens.positions()), SlotList{4});
  EXPECT_EQ(tokens.evicted(), 5);
}

}  // namespace
}  // namespace millrace
