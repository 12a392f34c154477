#include "run/context_refresh.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

// Documents of 8 tokens from token 1 on, of which `first` or the share `share` are computed again, and a question.
LiveStream stream_of(int64_t documents, int64_t first, double share) {
  LiveStream stream;
  for (int64_t i = 0; i < documents; ++i) {
    ContextPart& part = stream.context.parts.emplace_back();
    part.begin = 1 + 8 * i;
    part.end = part.begin + 8;
    part.fresh_first = first;
    part.fresh_share = share;
  }
  return stream;
}

TEST(RefreshIsDue, NothingIsStale) { EXPECT_FALSE(refresh_is_due(stream_of(3, 2, 0), 25, 100)); }

TEST(RefreshIsDue, TokensOfADocumentDoNotWaitForOthersButTheQuestionDoes) {
  LiveStream stream = stream_of(3, 2, 0);
  stream.stale = {0, 1};
  EXPECT_FALSE(refresh_is_due(stream, 17, 100));
  EXPECT_FALSE(refresh_is_due(stream, 24, 100));
  EXPECT_TRUE(refresh_is_due(stream, 25, 100));
}

TEST(RefreshIsDue, AFullPassDoesNotWait) {
  LiveStream stream = stream_of(3, 2, 0);
  stream.stale = {0, 1};
  EXPECT_FALSE(refresh_is_due(stream, 17, 5));
  EXPECT_TRUE(refresh_is_due(stream, 17, 4));
  // To choose a share, all tokens are computed.
  LiveStream shares = stream_of(3, 0, 0.25);
  shares.stale = {0};
  EXPECT_FALSE(refresh_is_due(shares, 9, 9));
  EXPECT_TRUE(refresh_is_due(shares, 9, 8));
}

}  // namespace
}  // namespace millrace
