// Drafters whose draft model is drafted for, over a model that continues texts by a rule and notes what it runs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "speculate/drafter.h"

namespace millrace {
namespace {

// The token after t is t + 1, and 1 after 5; its next likeliest one is 10 more. "9+3>2" runs tokens 9 to 11 and draws
// behind the last two of them.
class CountingModel final : public DraftModel {
 public:
  static TokenId next(TokenId token) { return token % 10 == 5 ? 1 : token % 10 + 1; }
  void run(std::span<DraftRun> runs) override {
    for (DraftRun& run : runs) {
      notes += fmt::format("{}{}+{}{}", notes.empty() ? "" : " ", run.first, run.count,
                           run.draws ? fmt::format(">{}", run.picks.size()) : "");
      for (size_t i = 0; i < run.picks.size(); ++i) {
        const int64_t at = run.first + run.count - std::ssize(run.picks) + static_cast<int64_t>(i);
        const TokenId drawn = next(run.stream->token_at(at));
        run.picks[i] = {drawn, share, {drawn, drawn + 10}, {share, 1 - share}};
      }
    }
  }
  std::string taken() { return std::exchange(notes, {}); }

  float share = 0.75F;
  std::string notes;
};

struct CascadeDraft : ::testing::Test {
  // A stream that decodes, with a draft of `drafted` tokens planned.
  Sequence stream(std::vector<TokenId> tokens, int64_t drafted, const Drafter& drafter) {
    Sequence s;
    s.id = 1;
    s.tokens = std::move(tokens);
    s.computed = s.size() - 1;
    s.draft.memory = drafter.model->drafter->remember();
    s.draft.tokens.assign(static_cast<size_t>(drafted), 0);
    return s;
  }
  static DraftChunk chunk_of(Sequence& s) { return {nullptr, &s, s.computed, 1, s.draft.size()}; }
  // The step kept these tokens; the next draft is of `drafted` tokens.
  static void commit(Sequence& s, Drafter& drafter, std::vector<TokenId> tokens, int64_t drafted) {
    s.tokens.insert(s.tokens.end(), tokens.begin(), tokens.end());
    s.computed = s.size() - 1;
    if (drafter.trees()) drafter.model->drafter->observe(s, std::ssize(tokens), {});
    s.draft.clear();
    s.draft.tokens.assign(static_cast<size_t>(drafted), 0);
  }

  CountingModel model;
};

TEST_F(CascadeDraft, GuessesSavePassesAndChangeNothing) {
  const std::vector<TokenId> text = {1, 2, 3, 4, 5, 1, 2, 3};
  for (const auto& [options, notes] : {std::pair("cascade:k=4,tail=0,guess=0", "7+1>1 8+1>1 9+1>1 10+1>1"),
                                       {"cascade:k=4,tail=0,guess=4", "7+4>4"},
                                       {"cascade:k=4,tail=0,guess=1", "7+2>2 9+2>2"}}) {
    auto drafter = make_drafter(options).value();
    Sequence s = stream(text, 4, *drafter);
    const DraftChunk chunk = chunk_of(s);
    drafter->model->drafter->propose_all({&chunk, 1}, model);
    EXPECT_EQ(model.taken(), notes);
    EXPECT_EQ(s.draft.tokens, (std::vector<TokenId>{4, 5, 1, 2}));
    EXPECT_EQ(s.draft.stored, 8 + 3);  // all but the last one were run
  }
}

// What the model does not confirm is its own token, and is run again.
TEST_F(CascadeDraft, WrongGuessesAreReplaced) {
  auto drafter = make_drafter("cascade:k=4,tail=0,guess=4").value();
  Sequence s = stream({2, 3, 9, 9, 2, 3}, 4, *drafter);  // guesses 9 9 2
  const DraftChunk chunk = chunk_of(s);
  drafter->model->drafter->propose_all({&chunk, 1}, model);
  EXPECT_EQ(s.draft.tokens, (std::vector<TokenId>{4, 5, 1, 2}));
  EXPECT_EQ(model.taken(), "5+4>4 6+1>1 7+1>1 8+1>1");  // nothing is known of what follows 4, 5 and 1
}

TEST_F(CascadeDraft, TheTailIsOfStatistics) {
  auto drafter = make_drafter("cascade:k=2,tail=3,guess=0").value();
  EXPECT_EQ(drafter->longest(), 5);
  Sequence s = stream({3, 4, 5, 7, 8, 9, 1, 2, 3}, 5, *drafter);
  const DraftChunk chunk = chunk_of(s);
  drafter->model->drafter->propose_all({&chunk, 1}, model);
  EXPECT_EQ(s.draft.tokens, (std::vector<TokenId>{4, 5, 7, 8, 9}));
  EXPECT_EQ(model.taken(), "8+1>1 9+1>1");
  commit(s, *drafter, {4, 5, 7, 8, 6}, 2);  // the next draft begins with what the model has not run
  const DraftChunk next = chunk_of(s);
  drafter->model->drafter->propose_all({&next, 1}, model);
  EXPECT_EQ(model.taken(), "10+4>1 14+1>1");
}

// A bigram of another stream that shares prefixes is known, one of a stream that does not is not.
TEST_F(CascadeDraft, BigramsAreOfStreamsThatSharePrefixes) {
  auto drafter = make_drafter("cascade:k=1,tail=1").value();
  for (const bool shares : {true, false}) {
    Sequence other = stream({30, 31, 2, 8}, 1, *drafter), s = stream({40, 41, 1}, 2, *drafter);
    for (Sequence* one : {&other, &s}) one->prefix = {.caches = shares, .scope = 7};
    s.id = 2;
    const DraftChunk chunks[] = {chunk_of(other), chunk_of(s)};
    drafter = make_drafter("cascade:k=1,tail=1").value();
    drafter->model->drafter->propose_all(chunks, model);
    EXPECT_EQ(s.draft.tokens, shares ? (std::vector<TokenId>{2, 8}) : (std::vector<TokenId>{2}));
  }
}

TEST_F(CascadeDraft, AStagedTreeHasTheLikeliestTokens) {
  auto drafter = make_drafter("staged:k=3,nodes=5,guess=0").value();
  EXPECT_TRUE(drafter->trees());
  Sequence s = stream({8, 9, 1}, 5, *drafter);
  const DraftChunk chunk = chunk_of(s);
  drafter->model->drafter->propose_all({&chunk, 1}, model);
  EXPECT_EQ(model.taken(), "2+1>1 3+1>1 4+1>1");
  // Reached: 2 0.75, 3 0.56, 4 0.42; 12 0.25, 13 0.19, 14 0.14.
  EXPECT_EQ(s.draft.tokens, (std::vector<TokenId>{2, 3, 4, 12, 13}));
  EXPECT_EQ(s.draft.parents, (std::vector<int32_t>{-1, 0, 1, -1, 0}));
  model.share = 0.4F;  // 12 0.6, 2 0.4, 13 0.24, 3 0.16
  Sequence unsure = stream({8, 9, 1}, 3, *drafter);
  const DraftChunk second = chunk_of(unsure);
  drafter->model->drafter->propose_all({&second, 1}, model);
  EXPECT_EQ(unsure.draft.tokens, (std::vector<TokenId>{2, 12, 13}));
  EXPECT_EQ(unsure.draft.parents, (std::vector<int32_t>{-1, -1, 0}));
}

// Behind a kept token that is not of the chain, the draft model's keys are of other tokens, and are computed again.
TEST_F(CascadeDraft, ALeafThatIsKeptIsRun) {
  struct Case {
    std::vector<TokenId> kept;
    const char* notes;
    int64_t stored;
  };
  for (const Case& one : {Case{{2, 3, 4, 7}, "5+2>1 7+1>1 8+1>1", 3},  // the chain: its last token was not run
                          Case{{2, 13, 7}, "4+2>1 6+1>1 7+1>1", 3},    // a leaf behind its first token
                          Case{{12, 7}, "3+2>1 5+1>1 6+1>1", 3},       // a leaf at its beginning
                          Case{{7}, "3+1>1 4+1>1 5+1>1", 3}}) {        // nothing
    auto drafter = make_drafter("staged:k=3,nodes=5,guess=0").value();
    Sequence s = stream({8, 9, 1}, 5, *drafter);
    const DraftChunk chunk = chunk_of(s);
    drafter->model->drafter->propose_all({&chunk, 1}, model);
    EXPECT_EQ(s.draft.stored, one.stored);  // until it is known
    model.taken();
    commit(s, *drafter, one.kept, 5);
    const DraftChunk next = chunk_of(s);
    drafter->model->drafter->propose_all({&next, 1}, model);
    EXPECT_EQ(model.taken(), one.notes);
    s.draft.tokens.clear();
    const DraftChunk plain = {nullptr, &s, s.computed, 1, 0};
    drafter->model->drafter->follow({&plain, 1}, model);
    EXPECT_EQ(s.draft.stored, DraftState::kAll);
  }
}

TEST(CascadeOptions, WhatTheyRefuse) {
  for (const auto& [text, message] :
       {std::pair("cascade:k=40,tail=30",
                  "drafter cascade: tail: 30 tokens behind k=40 are 70; a draft has at most 64"),
        {"staged:k=5,nodes=4", "drafter staged: nodes: must be at least k, of which they are a part"}}) {
    const auto made = make_drafter(text);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().message, message);
  }
  const auto staged = make_drafter("staged:model=a.gguf").value(), self = make_drafter("self:mlp=3").value();
  EXPECT_EQ(staged->model->spec.loader, "draft");
  EXPECT_EQ(staged->model->spec.options.text("model"), "a.gguf");
  EXPECT_EQ(self->model->spec.loader, "self");
  EXPECT_EQ(self->model->spec.options.text("mlp"), "3");
  EXPECT_EQ(make_drafter("cascade:k=3,tail=2").value()->model->rows, 6);
  EXPECT_EQ(make_drafter("draft").value()->model->rows, 1);
}

}  // namespace
}  // namespace millrace
