// Drafters of one layer: chains and trees of candidates, over a model whose tokens and shares are a rule.
#include "speculate/layer_drafter.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

// Behind token t it draws 10 t + 1, and 10 t + 2 is the next likeliest. "9+1>1" runs token 9 and draws behind it.
class TenfoldModel final : public DraftModel {
 public:
  void run(std::span<DraftRun> runs) override {
    for (DraftRun& run : runs) {
      notes += fmt::format("{}{}+{}{}", notes.empty() ? "" : " ", run.first, run.count,
                           run.draws ? fmt::format(">{}{}", run.picks.size(), run.weighs ? "!" : "") : "");
      for (size_t i = 0; i < run.picks.size(); ++i) {
        const int64_t at = run.first + run.count - std::ssize(run.picks) + static_cast<int64_t>(i);
        const TokenId drawn = 10 * run.stream->token_at(at) + 1;
        run.picks[i] = {drawn, first, {drawn, drawn + 1}, {first, second}};
      }
    }
  }
  std::string taken() { return std::exchange(notes, {}); }

  float first = 0.6f, second = 0.3f;
  std::string notes;
};

struct LayerDraft : ::testing::Test {
  static std::unique_ptr<Drafter> drafter(const LayerTree& tree) { return make_layer_drafter({"eagle", {}}, tree); }
  // Ten tokens, the last of which is 1.
  static Sequence stream(int64_t drafted) {
    Sequence s;
    s.id = 1;
    s.tokens.assign(10, 1);
    s.computed = 9;
    s.draft.tokens.assign(static_cast<size_t>(drafted), 0);
    return s;
  }
  void propose(const Drafter& with, Sequence& s, int64_t drafted) {
    const DraftChunk chunk{nullptr, &s, s.computed, 1, drafted};
    with.model->drafter->propose_all({&chunk, 1}, model);
  }
  TenfoldModel model;
};

using LayerTokens = std::vector<TokenId>;

TEST_F(LayerDraft, AChainRunsOneTokenAPass) {
  const auto chain = drafter({.depth = 3, .tokens = 3, .top = 1});
  EXPECT_EQ(chain->longest(), 3);
  EXPECT_EQ(chain->model->depth, 3);
  EXPECT_EQ(chain->model->rows, 1);
  EXPECT_FALSE(chain->trees());
  EXPECT_EQ(chain->model->spec.loader, "eagle");
  const std::pair<int64_t, const char*> passes[] = {
      {3, "9+1>1! 10+1>1! 11+1>1!"}, {2, "9+1>1! 10+1>1! 11+1>1!"}, {1, "9+1>1! 10+1>1!"}};
  for (const auto& [drafted, notes] : passes) {
    Sequence s = stream(drafted);
    propose(*chain, s, drafted);
    EXPECT_EQ(model.taken(), notes) << drafted;
    LayerTokens tokens = {11, 111, 1111};
    tokens.resize(static_cast<size_t>(drafted));
    EXPECT_EQ(s.draft.tokens, tokens);
    EXPECT_TRUE(s.draft.parents.empty());
    EXPECT_EQ(s.draft.stored, 10);
  }
}

// Tokens that the layer lacks run before the first draft.
TEST_F(LayerDraft, WhatIsNotStoredRunsFirst) {
  const auto chain = drafter({.depth = 2, .tokens = 2, .top = 1});
  Sequence s = stream(2);
  s.draft.stored = 6;
  propose(*chain, s, 2);
  EXPECT_EQ(model.taken(), "6+4>1! 10+1>1!");
  EXPECT_EQ(s.draft.stored, 10);
}

// Shares 0.6 and 0.3: 11 is reached with 0.6, 111 with 0.36, 12 with 0.3, 112 and 121 with 0.18.
TEST_F(LayerDraft, ATreeHasTheLikeliestCandidates) {
  const auto tree = drafter({.depth = 2, .tokens = 4, .top = 2});
  EXPECT_EQ(tree->longest(), 4);
  EXPECT_EQ(tree->model->depth, 2);
  EXPECT_EQ(tree->model->rows, 2);
  EXPECT_TRUE(tree->trees());
  Sequence s = stream(4);
  propose(*tree, s, 4);
  EXPECT_EQ(model.taken(), "9+1>1! 10+2>2!");
  EXPECT_EQ(s.draft.tokens, (LayerTokens{11, 111, 12, 112}));
  EXPECT_EQ(s.draft.parents, (std::vector<int32_t>{-1, 0, -1, 0}));
  EXPECT_EQ(s.draft.stored, 10);
}

// Four tokens in three levels: one runs in each, and what has been candidates before is not run later.
TEST_F(LayerDraft, LevelsShareTheSlots) {
  const auto tree = drafter({.depth = 3, .tokens = 4, .top = 2});
  Sequence s = stream(4);
  propose(*tree, s, 4);
  EXPECT_EQ(model.taken(), "9+1>1! 10+2>2! 12+2>2!");
  EXPECT_EQ(s.draft.tokens, (LayerTokens{11, 111, 12, 1111}));
  EXPECT_EQ(s.draft.parents, (std::vector<int32_t>{-1, 0, -1, 1}));
  s = stream(3);
  propose(*tree, s, 3);
  EXPECT_EQ(model.taken(), "9+1>1! 10+1>1! 11+2>2!");
  EXPECT_EQ(s.draft.tokens, (LayerTokens{11, 111, 12}));
}

// 0.4 and 0.39: both candidates before what follows the first one. Assumed shares are 0.6 and 0.15, whatever the model
// gives.
TEST_F(LayerDraft, AStaticTreeAssumesTheShares) {
  model.first = 0.4f;
  model.second = 0.39f;
  for (const bool assumed : {false, true}) {
    const auto tree = drafter({.depth = 2, .tokens = 3, .top = 2, .assumed = assumed});
    Sequence s = stream(3);
    propose(*tree, s, 3);
    EXPECT_EQ(s.draft.tokens, assumed ? (LayerTokens{11, 111, 12}) : (LayerTokens{11, 12, 111}));
    EXPECT_EQ(s.draft.parents, assumed ? (std::vector<int32_t>{-1, 0, -1}) : (std::vector<int32_t>{-1, -1, 0}));
  }
}

TEST_F(LayerDraft, StreamsWithoutADraftRunAfterTheStep) {
  const auto chain = drafter({.depth = 2, .tokens = 2, .top = 1});
  Sequence drafts = stream(1), prompt = stream(0), behind = stream(0);
  behind.draft.stored = 4;
  const DraftChunk chunks[] = {{nullptr, &drafts, 9, 1, 1}, {nullptr, &prompt, 2, 8, 0}, {nullptr, &behind, 9, 1, 0}};
  chain->model->drafter->follow(chunks, model);
  EXPECT_EQ(model.taken(), "2+8 4+6");
  EXPECT_EQ(behind.draft.stored, DraftState::kAll);
  chain->model->drafter->propose_all(chunks, model);
  EXPECT_EQ(model.taken(), "9+1>1! 10+1>1!") << "streams without a draft have no tree";
  chain->model->drafter->follow({chunks, 1}, model);
  EXPECT_EQ(model.taken(), "");
}

}  // namespace
}  // namespace millrace
