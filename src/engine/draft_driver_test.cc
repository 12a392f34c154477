// DraftDriver by itself: which streams draft, whose draft is taken, and what the drafter hears of a step.
#include "engine/draft_driver_test.h"

#include "engine/beam_group.h"
#include "run/compatibility/collect.h"
#include "run/compatibility/rules.h"

namespace millrace {
namespace {

using namespace testing;

TEST_F(DraftDriverTest, WithoutADrafterNothingHappens) {
  open(std::unique_ptr<Drafter>(), true);
  LiveStream& a = decoding_stream();
  a.sequence.draft.tokens = {7};
  driver_->propose(lists_);
  EXPECT_EQ(drafted(), 1) << "left as it was";
  auto work = decode_all();
  EXPECT_FALSE(driver_->before_pass(work));
  driver_->after_pass(work);
  driver_->observe(a, 1, 1, 0, *loop_.executor);
  driver_->end_step();
  EXPECT_EQ(loop_.stats.drafts, 0);
  EXPECT_EQ(a.drafts, nullptr);
}

TEST_F(DraftDriverTest, TreesDoNotGoWithEvictors) {
  const auto resolved = [&](bool trees) {
    Facts facts;
    add_drafter(*driver_drafter(script_, {.trees = trees}), "", facts);
    facts.add(facts::kEvicts, "evictor h2o");
    return resolve(facts);
  };
  EXPECT_TRUE(resolved(false).ok());
  EXPECT_EQ(resolved(true).error().kind, ErrorKind::unsupported);
}

TEST_F(DraftDriverTest, StreamsThatDecodeDraft) {
  open({.model = true}, false);
  decoding_stream();
  decoding_stream().sequence.held_back = true;
  decoding_stream().sequence.phase = StreamPhase::loading;
  decoding_stream().sequence.computed = 4;  // one more token is to run before the last one
  decoding_stream().beams = std::make_shared<BeamGroup>(
      BeamGroup{BeamSearch(BeamOptions{2, 1.0, EarlyStopping::no, 9, 0, {}}, -1), 2, {}, {}, {}, {}, 0, false});
  LiveStream& loads = decoding_stream();
  loads.load.ticket = 1;
  decoding_stream(8);  // two tokens to come, the last of which the step samples
  decoding_stream(7);
  for (const StreamPtr& one : lists_.running()) one->sequence.draft.tokens.assign(9, 9);
  driver_->propose(lists_);
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < lists_.running().size(); ++i) sizes.push_back(drafted(i));
  EXPECT_EQ(sizes, (std::vector<int64_t>{4, 0, 0, 0, 0, 0, 1, 0}));
  EXPECT_EQ(loop_.stats.drafts, 2);
  EXPECT_NEAR(loop_.stats.draft_length, 0.9 * 0.4 + 0.1 * 1, 1e-12);
  loads.load.ticket = 0;
  driver_->propose(lists_);
  EXPECT_EQ(drafted(5), 4);
  EXPECT_EQ(loop_.stats.drafts, 5);
}

// The model's passes are timed, and their chunks are those of the step; a shorter draft shortens its chunk.
TEST_F(DraftDriverTest, AModelDraftsForTheChunksOfTheStep) {
  open({.model = true}, false);
  decoding_stream();
  LiveStream& reads = decoding_stream();
  reads.sequence.computed = 0;
  decoding_stream();
  driver_->propose(lists_);
  std::vector<StepWork> work = decode_all();
  work[1].chunk = {2, 0, 3, false, 0};
  work[2].lost = true;
  script_.pass_ns = kSecond;
  EXPECT_FALSE(driver_->before_pass(work)) << "as long as planned";
  script_.model_most = 1;
  EXPECT_TRUE(driver_->before_pass(work));
  EXPECT_EQ(work[0].chunk.count, 2);
  EXPECT_EQ(work[0].chunk.drafted, 1);
  EXPECT_EQ(work[1].chunk.count, 3);
  EXPECT_DOUBLE_EQ(loop_.stats.draft_seconds, 2);
  script_.heard.clear();
  driver_->after_pass(work);
  EXPECT_EQ(script_.heard, Words{"follow 1:[5+1]1 2:[0+3]0"});
  EXPECT_DOUBLE_EQ(loop_.stats.draft_seconds, 3);
  script_.heard.clear();
  driver_->before_pass(work);
  EXPECT_EQ(script_.heard, Words{"all 1:[5+1]1 2:[0+3]0"});
}

TEST_F(DraftDriverTest, ADrafterWithoutAModelHasNoPass) {
  open({.longest = 3}, false);
  script_.draft.tokens = {7, 8};
  decoding_stream();
  driver_->propose(lists_);
  auto work = decode_all();
  script_.heard.clear();
  EXPECT_FALSE(driver_->before_pass(work));
  driver_->after_pass(work);
  EXPECT_EQ(script_.heard, Words{});
  EXPECT_EQ(loop_.stats.draft_seconds, 0);
}

TEST_F(DraftDriverTest, ProbesBehindCandidatesAreReported) {
  open({.longest = 5, .trees = true}, false);
  script_.draft.tokens = {7, 8, 9, 10, 11};
  script_.draft.parents = {-1, 0, 1, -1, 3};
  script_.draft.probes = 2;
  LiveStream& a = decoding_stream();
  EXPECT_EQ(proposed(), 5);
  const auto hears = [&](int64_t count) {
    script_.heard.clear();
    driver_->observe(a, count, 1, 5, *loop_.executor);
    return script_.heard;
  };
  EXPECT_EQ(hears(5), Words{"1 has 1, probed 109 110"});
  EXPECT_EQ(hears(4), Words{"1 has 1, probed 109"});
  EXPECT_EQ(hears(3), Words{"1 has 1, probed "});
  EXPECT_EQ(hears(0), Words{"1 has 1, probed "});
  open({.longest = 5}, false);
  EXPECT_EQ(hears(5), Words{}) << "chains have no probes to report";
}

// A member that drafts more than it may is cut; its probes are the last ones.
TEST_F(DraftDriverTest, LongDraftsAreCut) {
  const std::pair<int64_t, int64_t> cuts[] = {{6, 3}, {4, 1}, {3, 0}, {2, 0}};
  for (const auto& [longest, probes] : cuts) {
    lists_ = {};
    open({.longest = longest, .trees = true}, false);
    script_.draft.tokens = {7, 8, 9, 10, 11, 12};
    script_.draft.parents = {-1, -1, -1, -1, -1, -1};
    script_.draft.probes = 3;
    const Draft& draft = decoding_stream().sequence.draft;
    driver_->propose(lists_);
    EXPECT_EQ(draft.size(), longest);
    EXPECT_EQ(std::ssize(draft.parents), longest);
    EXPECT_EQ(draft.probes, probes);
  }
}

// Each row tells what follows its token: the stream's last one when the step ran, and the drafted ones.
TEST_F(DraftDriverTest, ADrafterLearnsFromEveryRow) {
  open({.learns = 2}, false);
  LiveStream& a = decoding_stream();
  a.sequence.draft.tokens = {7, 70, 71};
  a.sequence.tokens.push_back(7);
  a.sequence.tokens.push_back(8);  // the step has kept one drafted token, and sampled the next
  driver_->observe(a, 3, 2, 5, *loop_.executor);
  EXPECT_EQ(script_.heard, (Words{"1 learns 5000 5001 after 6", "1 learns 6000 6001 after 7",
                                  "1 learns 7000 7001 after 70", "1 learns 8000 8001 after 71"}));
  script_.heard.clear();
  driver_->observe(a, 0, 1, 9, *loop_.executor);
  EXPECT_EQ(script_.heard, Words{"1 learns 9000 9001 after 7"});
  script_.heard.clear();
  a.sequence.request.beams = 2;
  driver_->observe(a, 0, 1, 9, *loop_.executor);
  EXPECT_EQ(script_.heard, Words{});
}

TEST_F(DraftDriverTest, ADrafterLearnsNoMoreThanTheVocabulary) {
  open({.learns = 80}, false);
  LiveStream& a = decoding_stream();
  driver_->observe(a, 0, 1, 0, *loop_.executor);
  ASSERT_EQ(script_.heard.size(), 1u);
  EXPECT_TRUE(script_.heard[0].ends_with(" 48 49 after 5")) << script_.heard[0];
}

// Shares of a draft model, as if two tokens of which 0.9 were kept had been seen before.
TEST_F(DraftDriverTest, ADraftModelIsJudgedByWhatRan) {
  open({.model = true}, false);
  LiveStream& a = decoding_stream();
  driver_->propose(lists_);
  const auto acceptance = [&](int64_t count, int64_t committed) {
    driver_->observe(a, count, committed, 0, *loop_.executor);
    return loop_.stats.draft_acceptance;
  };
  EXPECT_DOUBLE_EQ(acceptance(0, 1), 0) << "none ran";
  EXPECT_DOUBLE_EQ(acceptance(3, 2), (1 + 1.8) / (1 + 2));
  EXPECT_DOUBLE_EQ(acceptance(3, 1), (0.98 + 1.8) / (1.98 + 2));
  const KeptShares& own = a.drafts->members[0].shares;
  EXPECT_DOUBLE_EQ(own.share(0, 0.5, 2), (0.9 + 1) / (1.9 + 2)) << "a stream forgets faster";
  EXPECT_DOUBLE_EQ(own.share(1, 0.5, 2), (0 + 1.0) / (1 + 2)) << "the second token ran once, and was not kept";
  EXPECT_DOUBLE_EQ(own.share(3, 0.5, 2), 0.5);
  acceptance(2, 3);
  EXPECT_DOUBLE_EQ(own.share(1, 0.5, 2), (1 + 1.0) / (0.9 + 1 + 2)) << "both were kept, and no third one ran";
}

TEST_F(DraftDriverTest, OfATreeTheModelIsJudgedByTheDepth) {
  open({.model = true, .trees = true, .depth = 1}, false);
  LiveStream& a = decoding_stream();
  driver_->propose(lists_);
  driver_->observe(a, 3, 3, 0, *loop_.executor);
  const KeptShares& own = a.drafts->members[0].shares;
  EXPECT_DOUBLE_EQ(own.share(0, 0.5, 2), (1 + 1.0) / (1 + 2));
  EXPECT_DOUBLE_EQ(own.share(1, 0.5, 2), 0.5);
}

// Two drafters with memories of their own; the longer draft is taken, and of equal ones the first.
TEST_F(DraftDriverTest, TheDraftOfWhichMostIsExpectedIsTaken) {
  struct Turn {
    int64_t first, second;
    const char* taken;
  };
  for (const Turn& turn : {Turn{4, 4, "first"}, Turn{4, 3, "first"}, Turn{3, 4, "second"}, Turn{9, 2, "first"}}) {
    lists_ = {};
    script_ = {};
    auto both = driver_drafter(script_, {.longest = std::min<int64_t>(6, turn.first), .name = "first"});
    both->texts.push_back(
        std::move(driver_drafter(script_, {.longest = turn.second, .name = "second"})->texts.front()));
    open(std::move(both), false);
    script_.draft.tokens = {7, 8, 9, 10, 11, 12};
    LiveStream& a = decoding_stream(100);
    driver_->propose(lists_);
    EXPECT_EQ(drafted(), std::min<int64_t>(6, std::max(turn.first, turn.second)));
    EXPECT_EQ(static_cast<const NamedMemory*>(a.sequence.draft.memory.get())->name, turn.taken);
    EXPECT_EQ(a.drafts->chosen, std::string(turn.taken) == "first" ? 0u : 1u);
    EXPECT_EQ(script_.heard, (Words{fmt::format("first drafts {} with first", std::min<int64_t>(6, turn.first)),
                                    fmt::format("second drafts {} with second", turn.second)}));
    lists_ = {};
    script_.heard.clear();
    decoding_stream(9);  // room for a draft of two
    driver_->propose(lists_);
    EXPECT_EQ(script_.heard, (Words{"first drafts 2 with first", "second drafts 2 with second"}));
  }
}

}  // namespace
}  // namespace millrace
