// Rows sampled ahead: which ones, and that choose() gives out what was sampled, per stream and in order.
#include "run/executors/token_choice.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "run/executors/stepped_stream_test.h"
#include "speculate/acceptance.h"

namespace millrace {
namespace {

constexpr int64_t kChoiceVocab = 50;

class TokenChoices : public ::testing::Test {
 protected:
  // A stream with a prompt of one token, whose step has `drafted`; its rows come next.
  testing::SteppedStream& add(const std::vector<TokenId>& drafted = {}, SamplingOptions sampling = {.temperature = 0}) {
    auto stream = std::make_unique<testing::SteppedStream>();
    Sequence& s = stream->sequence;
    s.request.sampling = sampling;
    s.tokens = {0};
    s.prompt_tokens = 1;
    s.max_total = 10;
    s.draft.tokens = drafted;
    SamplerSetup setup;
    setup.options = sampling;
    setup.vocab_size = kChoiceVocab;
    stream->own.sampler = SamplerChain::create(setup).value();
    const int64_t count = 1 + std::ssize(drafted);
    work_.push_back(
        {.sequence = &s,
         .own = &stream->own,
         .chunk = {.request = 1, .first = 0, .count = count, .sample = true, .drafted = std::ssize(drafted)},
         .chooses = true});
    logits_.resize(logits_.size() + static_cast<size_t>(count * kChoiceVocab));
    streams_.push_back(std::move(stream));
    return *streams_.back();
  }
  // Row r prefers token 10 + r.
  void fill(TokenId first = 10) {
    std::ranges::fill(logits_, 0.0f);
    for (int64_t row = 0; row < std::ssize(logits_) / kChoiceVocab; ++row)
      logits_[static_cast<size_t>(row * kChoiceVocab + first + row)] = 5;
  }
  TokenId choose(TokenChoice& choice, testing::SteppedStream& stream, int64_t row) {
    TokenEvent event;
    const auto ended = choice.choose(stream.ref(), row, logits_.data(), event);
    EXPECT_TRUE(ended.ok());
    if (!ended.ok()) return -1;
    stream.sequence.tokens.push_back(event.token);
    return event.token;
  }

  ThreadPool threads_{3};
  std::unique_ptr<Acceptance> exact_ = make_acceptance("exact").value();
  std::vector<std::unique_ptr<testing::SteppedStream>> streams_;
  std::vector<ChoiceWork> work_;
  std::vector<float> logits_;
};

TEST_F(TokenChoices, StreamsAreSampledAheadUpToTheFirstWrongToken) {
  testing::SteppedStream &first = add(), &second = add({11, 12, 40}), &third = add({14});
  fill();  // rows 0 | 1 2 3 4 | 5 6: the second stream's draft has 11, 12 and a wrong one, the third's is wrong
  TokenChoice choice(nullptr, kChoiceVocab, threads_, 7);
  choice.choose_ahead(work_, *exact_, logits_.data());
  fill(20);  // what was sampled ahead does not see this
  EXPECT_EQ(choose(choice, first, 0), 10);
  EXPECT_EQ(choose(choice, second, 1), 11);
  EXPECT_EQ(choose(choice, second, 2), 12);
  EXPECT_EQ(choose(choice, second, 3), 13);
  EXPECT_EQ(choose(choice, second, 4), 24) << "behind a wrong token";
  EXPECT_EQ(choose(choice, third, 5), 15);
  EXPECT_EQ(choose(choice, third, 6), 26);
}

TEST_F(TokenChoices, EachResultIsGivenOutOnceAndToItsStream) {
  testing::SteppedStream &first = add(), &second = add();
  fill();
  TokenChoice choice(nullptr, kChoiceVocab, threads_, 2);
  choice.choose_ahead(work_, *exact_, logits_.data());
  fill(20);
  EXPECT_EQ(choose(choice, second, 1), 11);
  EXPECT_EQ(choose(choice, second, 1), 21);
  EXPECT_EQ(choose(choice, second, 0), 20) << "the first stream's row";
  choice.choose_ahead(work_, *exact_, logits_.data());
  choice.forget();
  fill(30);
  EXPECT_EQ(choose(choice, first, 0), 30);
}

TEST_F(TokenChoices, ALoneStreamIsSampledWhenItIsAskedFor) {
  testing::SteppedStream& only = add({10});
  fill();
  TokenChoice choice(nullptr, kChoiceVocab, threads_, 2);
  choice.choose_ahead(work_, *exact_, logits_.data());
  fill(20);
  EXPECT_EQ(choose(choice, only, 0), 20);
}

TEST_F(TokenChoices, LostChunksAndFullStreamsAreNotSampled) {
  testing::SteppedStream &lost = add(), &full = add(), &one = add(), &other = add();
  work_[0].chooses = false;
  full.sequence.max_total = 1;
  fill();
  TokenChoice choice(nullptr, kChoiceVocab, threads_, 4);
  choice.choose_ahead(work_, *exact_, logits_.data());
  fill(20);
  EXPECT_EQ(choose(choice, lost, 0), 20);
  EXPECT_EQ(choose(choice, full, 1), 21);
  EXPECT_EQ(choose(choice, one, 2), 12);
  EXPECT_EQ(choose(choice, other, 3), 13);
}

// A draft is not followed beyond the stream's longest length.
TEST_F(TokenChoices, ADraftEndsWithItsStream) {
  testing::SteppedStream &ends = add({10, 11}), &other = add();
  ends.sequence.max_total = 3;
  fill();
  TokenChoice choice(nullptr, kChoiceVocab, threads_, 4);
  choice.choose_ahead(work_, *exact_, logits_.data());
  fill(20);
  EXPECT_EQ(choose(choice, ends, 0), 10);
  EXPECT_EQ(choose(choice, ends, 1), 11);
  EXPECT_EQ(choose(choice, ends, 2), 22);
  EXPECT_EQ(choose(choice, other, 3), 13);
}

TEST_F(TokenChoices, AnErrorStaysWithItsStream) {
  SamplingOptions none;
  none.allowed_tokens = {3};
  none.banned_tokens = {3};
  testing::SteppedStream &fails = add({}, none), &other = add();
  fill();
  TokenChoice choice(nullptr, kChoiceVocab, threads_, 2);
  choice.choose_ahead(work_, *exact_, logits_.data());
  TokenEvent event;
  const auto failed = choice.choose(fails.ref(), 0, logits_.data(), event);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message,
            "sampling: no token is left to choose from: the allowed and banned tokens and what the answer is held to "
            "have none in common, or the model's logits are not finite");
  EXPECT_EQ(choose(choice, other, 1), 11);
}

}  // namespace
}  // namespace millrace
