#include "run/documents/context_refresh.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

// Documents of 8 tokens from token 1 on, of which `first` or the share `share` are computed again, and a question.
ContextPlan stale_plan(int64_t documents, int64_t first, double share) {
  ContextPlan plan;
  for (int64_t i = 0; i < documents; ++i) {
    ContextPart& part = plan.parts.emplace_back();
    part.begin = 1 + 8 * i;
    part.end = part.begin + 8;
    part.fresh_first = first;
    part.fresh_share = share;
  }
  return plan;
}

TEST(RefreshIsDue, NothingIsStale) { EXPECT_FALSE(refresh_is_due(stale_plan(3, 2, 0), {}, 25, 100)); }

TEST(RefreshIsDue, TokensOfADocumentDoNotWaitForOthersButTheQuestionDoes) {
  const ContextPlan plan = stale_plan(3, 2, 0);
  const size_t stale[] = {0, 1};
  EXPECT_FALSE(refresh_is_due(plan, stale, 17, 100));
  EXPECT_FALSE(refresh_is_due(plan, stale, 24, 100));
  EXPECT_TRUE(refresh_is_due(plan, stale, 25, 100));
}

TEST(RefreshIsDue, AFullPassDoesNotWait) {
  const ContextPlan plan = stale_plan(3, 2, 0);
  const size_t stale[] = {0, 1};
  EXPECT_FALSE(refresh_is_due(plan, stale, 17, 5));
  EXPECT_TRUE(refresh_is_due(plan, stale, 17, 4));
  // To choose a share, all tokens are computed.
  const ContextPlan shares = stale_plan(3, 0, 0.25);
  const size_t one[] = {0};
  EXPECT_FALSE(refresh_is_due(shares, one, 9, 9));
  EXPECT_TRUE(refresh_is_due(shares, one, 9, 8));
}

}  // namespace
}  // namespace millrace
