// Drafters that end a draft where their model is not sure, over a model that says how sure it is.
#include "speculate/exit_drafter.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

// "1:5+2" runs tokens 5 and 6 of stream 1; ! where it is asked for its confidence, which is `sure[pass]`.
class SureModel final : public DraftModel {
 public:
  void run(std::span<DraftRun> runs) override {
    notes += notes.empty() ? "" : " | ";
    for (size_t i = 0; i < runs.size(); ++i) {
      DraftRun& run = runs[i];
      EXPECT_TRUE(run.draws);
      notes += fmt::format("{}{}:{}+{}{}", i ? " " : "", run.stream->id, run.first, run.count, run.weighs ? "!" : "");
      run.drawn = static_cast<TokenId>(100 * (pass + 1) + static_cast<int64_t>(run.stream->id));
      run.confidence = sure.empty() ? 1 : sure.at(static_cast<size_t>(pass));
    }
    ++pass;
  }

  std::vector<float> sure;
  int64_t pass = 0;
  std::string notes;
};

Sequence exit_stream(const ModelPart& drafter, RequestId id, int64_t tokens, int64_t drafted) {
  Sequence s;
  s.id = id;
  s.tokens.assign(static_cast<size_t>(tokens), 7);
  s.computed = tokens - 1;
  s.draft.memory = drafter.drafter->remember();
  s.draft.tokens.assign(static_cast<size_t>(drafted), 0);
  return s;
}

// Drafts once, with these confidences; returns how many tokens the draft has.
int64_t exit_draft(const ModelPart& drafter, Sequence& s, std::vector<float> sure, int64_t planned = 4) {
  SureModel model;
  model.sure = std::move(sure);
  s.draft.tokens.assign(static_cast<size_t>(planned), 0);
  const DraftChunk chunk{nullptr, &s, s.computed, 1, planned};
  drafter.drafter->propose_all({&chunk, 1}, model);
  return s.draft.size();
}

TEST(ExitDrafter, WithoutAThresholdDraftsAreWhole) {
  const auto made = make_exit_drafter({"self", {}}, {.drafted = 3});
  EXPECT_EQ(made->longest(), 3);
  EXPECT_TRUE(made->texts.empty());
  const ModelPart& drafter = *made->model;
  EXPECT_EQ(drafter.depth, 3);
  EXPECT_EQ(drafter.spec.loader, "self");
  Sequence a = exit_stream(drafter, 1, 10, 3), b = exit_stream(drafter, 2, 20, 1), c = exit_stream(drafter, 3, 5, 0),
           d = exit_stream(drafter, 4, 7, 2);
  const DraftChunk chunks[] = {
      {nullptr, &a, 9, 1, 3}, {nullptr, &b, 19, 1, 1}, {nullptr, &c, 0, 5, 0}, {nullptr, &d, 6, 1, 2}};
  SureModel model;
  drafter.drafter->propose_all(chunks, model);
  EXPECT_EQ(model.notes, "1:9+1 2:19+1 4:6+1 | 1:10+1 4:7+1 | 1:11+1");
  EXPECT_EQ(a.draft.tokens, (std::vector<TokenId>{101, 201, 301}));
  EXPECT_EQ(b.draft.tokens, (std::vector<TokenId>{102}));
  EXPECT_TRUE(c.draft.tokens.empty());
  EXPECT_EQ(d.draft.tokens, (std::vector<TokenId>{104, 204}));
}

TEST(ExitDrafter, ADraftEndsBehindATokenThatIsNotSure) {
  const auto made = make_exit_drafter({"kangaroo", {}}, {.drafted = 4, .threshold = 0.5});
  const ModelPart& drafter = *made->model;
  EXPECT_EQ(drafter.spec.loader, "kangaroo");
  Sequence s = exit_stream(drafter, 1, 10, 4);
  EXPECT_EQ(exit_draft(drafter, s, {0.9f, 0.5f, 0.4f}), 3) << "0.5 is enough";
  EXPECT_EQ(exit_draft(drafter, s, {0.4f}), 1);
  EXPECT_EQ(exit_draft(drafter, s, {0.9f, 0.9f, 0.9f, 0.1f}), 4);
  EXPECT_EQ(exit_draft(drafter, s, {0.9f, 0.9f}, 2), 2);
  SureModel model;
  const DraftChunk chunk{nullptr, &s, 9, 1, 1};
  drafter.drafter->propose_all({&chunk, 1}, model);
  EXPECT_EQ(model.notes, "1:9+1!");
}

// The threshold moves by 0.001 a step: down where more than the wanted share was kept, on average, and up otherwise.
TEST(ExitDrafter, TheThresholdFollowsWhatIsKept) {
  const auto made = make_exit_drafter({}, {.drafted = 4, .threshold = 0.5, .wanted = 0.9});
  const ModelPart& drafter = *made->model;
  const auto after = [&](std::vector<std::pair<int64_t, int64_t>> steps) {
    Sequence s = exit_stream(drafter, 1, 10, 4);
    exit_draft(drafter, s, {0});
    for (const auto& [drafted, accepted] : steps) {
      s.draft.drafted += drafted;
      s.draft.accepted += accepted;
      exit_draft(drafter, s, {0});
    }
    // The first of these confidences that is sure enough, in steps of half a change.
    for (int i = -20; i < 20; ++i) {
      const double sure = 0.5 + 0.0005 + 0.001 * i;
      if (exit_draft(drafter, s, {static_cast<float>(sure), 0}) == 2) return i;
    }
    return 99;
  };
  EXPECT_EQ(after({}), 0);
  EXPECT_EQ(after({{4, 4}}), -1);
  EXPECT_EQ(after({{4, 0}}), 1);
  EXPECT_EQ(after({{0, 0}}), 0) << "no draft has run";
  EXPECT_EQ(after({{4, 4}, {0, 0}}), -1);
  EXPECT_EQ(after({{4, 3}}), 1) << "0.875 is less than 0.9";
  EXPECT_EQ(after({{10, 9}}), -1) << "0.95 is more";
  EXPECT_EQ(after({{10, 8}}), 1) << "0.9 itself is not";
  EXPECT_EQ(after({{4, 0}, {4, 4}}), 2) << "the average is 0.75 now";
  EXPECT_EQ(after({{4, 4}, {4, 4}, {4, 4}}), -3);
  const auto fixed = make_exit_drafter({}, {.drafted = 4, .threshold = 0.5});
  Sequence s = exit_stream(*fixed->model, 1, 10, 4);
  s.draft.drafted = 4;
  EXPECT_EQ(exit_draft(*fixed->model, s, {0.5f, 0}), 2) << "without a wanted share it stays";
}

}  // namespace
}  // namespace millrace
