// Drafts from a request's prediction: after the same tokens, and found again after others.
#include "speculate/prediction.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

using Ids = std::vector<TokenId>;

class PredictionTest : public ::testing::Test {
 protected:
  Sequence& stream(const Ids& prediction) {
    stream_ = {};
    stream_.request.prediction = prediction;
    stream_.tokens = {90, 91};
    stream_.prompt_tokens = 2;
    return stream_;
  }
  Ids draft(int64_t most = 3) {
    Ids out;
    draft_predicted(stream_, most, out);
    return out;
  }
  Ids after(const Ids& tokens, int64_t most = 3) {
    stream_.tokens.insert(stream_.tokens.end(), tokens.begin(), tokens.end());
    return draft(most);
  }
  Sequence stream_;
};

TEST_F(PredictionTest, FollowsThePredictionFromItsBeginning) {
  stream({1, 2, 3, 4, 5});
  EXPECT_EQ(draft(), (Ids{1, 2, 3}));
  EXPECT_EQ(after({1}), (Ids{2, 3, 4}));
  EXPECT_EQ(after({2, 3}), (Ids{4, 5}));
  EXPECT_EQ(after({4, 5}), Ids()) << "its end";
  EXPECT_EQ(after({6}), Ids());
  stream({1, 2, 3});
  EXPECT_EQ(draft(0), Ids());
  stream({});
  EXPECT_EQ(draft(), Ids());
}

TEST_F(PredictionTest, FindsItsPlaceAgain) {
  stream({1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(after({1, 2, 40}), Ids()) << "a token of the prediction was replaced";
  EXPECT_EQ(after({4}), (Ids{5, 6, 7})) << "one token near the last place is enough";
  EXPECT_EQ(after({5, 7}), (Ids{8})) << "left out";
  stream({1, 2, 3, 4, 5});
  EXPECT_EQ(after({1, 2, 2}), (Ids{3, 4, 5})) << "put in";
}

TEST_F(PredictionTest, FarAwayItTakesTwoTokensAndTheLongestMatchCounts) {
  Ids prediction(100);
  for (size_t i = 0; i < prediction.size(); ++i) prediction[i] = static_cast<TokenId>(100 + i);
  prediction[80] = 150;  // as at 50
  prediction[81] = 151;
  stream(prediction);
  EXPECT_EQ(after({7}), Ids());
  EXPECT_EQ(after({170}), Ids()) << "one token, far away";
  EXPECT_EQ(after({171}), (Ids{172, 173, 174}));
  stream(prediction);
  EXPECT_EQ(after({7, 150, 151}), (Ids{152, 153, 154})) << "of equal matches the nearest";
  stream(prediction);
  EXPECT_EQ(after({7, 179, 150, 151}), (Ids{182, 183, 184})) << "the longest";
}

}  // namespace
}  // namespace millrace
