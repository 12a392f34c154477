// sorted(), the length of the list's sorted prefix, stays valid under all operations that shorten the list.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sampling/row.h"

namespace millrace {
namespace {

constexpr float kOutOfRow = -std::numeric_limits<float>::infinity();

std::vector<TokenId> ordered_tokens(SamplingRow& row) {
  std::vector<TokenId> out;
  for (const auto& candidate : row.candidates()) out.push_back(candidate.token);
  return out;
}

using Ids = std::vector<TokenId>;

// A list of six, in the order of their ids: 1 5 3 6 4 2.
class RowOrder : public ::testing::Test {
 protected:
  RowOrder() {
    row_.begin(logits_, 0, 0);
    row_.candidates();
  }
  // sorted() never exceeds the list, and that prefix is in order.
  void expect_truth(size_t sorted) {
    EXPECT_EQ(row_.sorted(), sorted);
    const auto& list = row_.candidates();
    ASSERT_LE(row_.sorted(), list.size());
    EXPECT_TRUE(std::is_sorted(list.begin(), list.begin() + static_cast<ptrdiff_t>(row_.sorted()), better));
    const auto best = std::min_element(list.begin(), list.end(), better);
    EXPECT_EQ(row_.max_logit(), best == list.end() ? kOutOfRow : best->logit);
  }
  std::vector<float> logits_ = {1, 5, 3, 6, 4, 2};
  SamplingRow row_;
};

TEST_F(RowOrder, SortingASortedPrefixMovesNothing) {
  row_.sort_prefix(0);
  EXPECT_EQ(ordered_tokens(row_), (Ids{0, 1, 2, 3, 4, 5}));
  row_.sort_prefix(2);
  const Ids before = ordered_tokens(row_);
  EXPECT_EQ(Ids(before.begin(), before.begin() + 2), (Ids{3, 1}));
  row_.sort_prefix(2);
  row_.sort_prefix(1);
  EXPECT_EQ(ordered_tokens(row_), before);
  expect_truth(2);
}

TEST_F(RowOrder, TruncationKeepsTheSortedCount) {
  row_.truncate(5);
  expect_truth(0);
  EXPECT_EQ(ordered_tokens(row_), (Ids{0, 1, 2, 3, 4}));
  row_.sort_prefix(4);
  row_.truncate(2);
  expect_truth(2);
  EXPECT_EQ(ordered_tokens(row_), (Ids{3, 1}));
  row_.truncate(9);
  expect_truth(2);
}

TEST_F(RowOrder, DroppingTheFrontKeepsTheSortedCount) {
  row_.sort_prefix(4);
  row_.drop_front(1);
  expect_truth(3);
  row_.drop_front(3);
  expect_truth(0);
  EXPECT_EQ(row_.candidates().size(), 2u);
  row_.sort_prefix(1);
  row_.drop_front(2);
  expect_truth(0);
  EXPECT_TRUE(row_.candidates().empty());
}

TEST_F(RowOrder, DroppingTooManyLeavesAnEmptyList) {
  row_.sort_prefix(1);
  row_.drop_front(10);
  expect_truth(0);
  EXPECT_TRUE(row_.candidates().empty());
}

TEST_F(RowOrder, SingleCandidateIsSorted) {
  row_.keep_argmax();
  expect_truth(1);
  row_.begin(logits_, 0, 0);
  row_.keep_argmax();  // dense this time
  expect_truth(1);
  EXPECT_EQ(ordered_tokens(row_), (Ids{3}));
}

TEST_F(RowOrder, SoftmaxOfAnEmptyListIsEmpty) {
  logits_.assign(6, kOutOfRow);
  row_.begin(logits_, 0, 0);
  const Softmax softmax = row_.softmax();
  EXPECT_EQ(softmax.max, 0.0);
  EXPECT_EQ(softmax.total, 0.0);
  EXPECT_EQ(softmax.probability(0), 0.0);
}

TEST_F(RowOrder, SoftmaxHasOneWeightForEachCandidate) {
  row_.sort_prefix(3);
  const Softmax softmax = row_.softmax();
  EXPECT_EQ(softmax.max, 6.0);
  const auto& list = row_.candidates();
  ASSERT_EQ(row_.weights().size(), 6u);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(row_.weights()[i], std::exp(static_cast<double>(list[i].logit) - 6));
  row_.keep_argmax();
  EXPECT_EQ(row_.softmax().total, 1.0);
  EXPECT_EQ(row_.softmax().probability(6), 1.0) << "a single candidate is certain";
}

}  // namespace
}  // namespace millrace
