// The drafter with a second model, over a model that only notes what it is asked to run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "speculate/drafter.h"

namespace millrace {
namespace {

// "1:5+2>" runs tokens 5 and 6 of stream 1 and draws the next one, whose id is 100 x pass + 10 x branch + stream.
class NotedModel final : public DraftModel {
 public:
  void run(std::span<DraftRun> runs) override {
    ++passes;
    notes += notes.empty() ? "" : " | ";
    for (size_t i = 0; i < runs.size(); ++i) {
      DraftRun& run = runs[i];
      notes += fmt::format("{}{}:{}+{}{}", i ? " " : "", run.stream->id, run.first, run.count, run.draws ? ">" : "");
      if (!run.draws) continue;
      run.drawn = static_cast<TokenId>(100 * passes + static_cast<int64_t>(run.stream->id));
      for (size_t j = 0; j < run.more.size(); ++j) run.more[j] = run.drawn + static_cast<TokenId>(10 * (j + 1));
    }
  }
  std::string taken() { return std::exchange(notes, {}); }

  int64_t passes = 0;
  std::string notes;
};

struct ModelDraft : ::testing::Test {
  // A stream that decodes, with `tokens` tokens, and room for a draft.
  Sequence stream(RequestId id, int64_t tokens, int64_t drafted) {
    Sequence s;
    s.id = id;
    s.tokens.assign(static_cast<size_t>(tokens), 7);
    s.computed = tokens - 1;
    s.draft.tokens.assign(static_cast<size_t>(drafted), 0);
    return s;
  }
  static DraftChunk chunk_of(Sequence& s) { return {nullptr, &s, s.computed, 1, s.draft.size()}; }

  std::unique_ptr<Drafter> drafter = make_drafter("draft:k=3").value();
  NotedModel model;
};

TEST_F(ModelDraft, DraftsForAllStreamsInOnePassAToken) {
  Sequence a = stream(1, 10, 3), b = stream(2, 20, 1), c = stream(3, 5, 2);
  const DraftChunk chunks[] = {chunk_of(a), chunk_of(b), chunk_of(c)};
  drafter->model->drafter->propose_all(chunks, model);
  EXPECT_EQ(model.taken(), "1:9+1> 2:19+1> 3:4+1> | 1:10+1> 3:5+1> | 1:11+1>");
  EXPECT_EQ(a.draft.tokens, (std::vector<TokenId>{101, 201, 301}));
  EXPECT_EQ(b.draft.tokens, (std::vector<TokenId>{102}));
  EXPECT_EQ(c.draft.tokens, (std::vector<TokenId>{103, 203}));
  drafter->model->drafter->follow(chunks, model);
  EXPECT_EQ(model.taken(), "");
}

// The last drafted token was not run: where it is kept, the next draft begins with it.
TEST_F(ModelDraft, RunsTheTokenThatTheLastDraftDidNot) {
  Sequence s = stream(1, 10, 3);
  const DraftChunk first = chunk_of(s);
  drafter->model->drafter->propose_all({&first, 1}, model);
  s.computed = 10;  // nothing was right
  EXPECT_EQ(s.shareable(), 10);
  s.computed = 12;
  EXPECT_EQ(s.shareable(), 12);
  s.computed = 13;  // all were
  EXPECT_EQ(s.shareable(), 12);
  s.tokens.assign(14, 7);
  model.taken();
  const DraftChunk second = chunk_of(s);
  drafter->model->drafter->propose_all({&second, 1}, model);
  EXPECT_EQ(model.taken(), "1:12+2> | 1:14+1> | 1:15+1>");
}

TEST_F(ModelDraft, PromptsAndStreamsWithoutADraftFollowInOnePass) {
  Sequence prompt = stream(1, 40, 0), drafting = stream(2, 9, 2), last = stream(3, 30, 3);
  prompt.computed = 8;
  const DraftChunk before = chunk_of(last);
  drafter->model->drafter->propose_all({&before, 1}, model);
  last.computed = 33;
  last.tokens.assign(34, 7);
  last.draft.tokens.clear();  // no room is left
  model.taken();
  const DraftChunk chunks[] = {{nullptr, &prompt, 8, 16, 0}, chunk_of(drafting), chunk_of(last)};
  drafter->model->drafter->propose_all(chunks, model);
  EXPECT_EQ(model.taken(), "2:8+1> | 2:9+1>");
  drafter->model->drafter->follow(chunks, model);
  EXPECT_EQ(model.taken(), "1:8+16 3:32+2");
  last.computed = 34;
  EXPECT_EQ(last.shareable(), 34);
}

// A pass runs one token of each branch that another one follows; what is left of a tree without room is a tree.
TEST_F(ModelDraft, BranchesAreDraftedLevelByLevel) {
  drafter = make_drafter("draft:k=3,branches=2").value();
  EXPECT_EQ(drafter->longest(), 6);
  EXPECT_TRUE(drafter->trees());
  Sequence a = stream(1, 10, 6), b = stream(2, 20, 3), c = stream(3, 5, 1);
  const DraftChunk chunks[] = {chunk_of(a), chunk_of(b), chunk_of(c)};
  drafter->model->drafter->propose_all(chunks, model);
  EXPECT_EQ(model.taken(), "1:9+1> 2:19+1> 3:4+1> | 1:10+2> 2:20+1> | 1:12+2>");
  EXPECT_EQ(a.draft.tokens, (std::vector<TokenId>{101, 111, 201, 211, 301, 311}));
  EXPECT_EQ(a.draft.parents, (std::vector<int32_t>{-1, -1, 0, 1, 2, 3}));
  EXPECT_EQ(b.draft.tokens, (std::vector<TokenId>{102, 112, 202}));
  EXPECT_EQ(c.draft.tokens, (std::vector<TokenId>{103}));
  EXPECT_EQ(a.draft.stored, 12) << "of three levels, the last one was not run";
  EXPECT_EQ(b.draft.stored, 20) << "of the first level, the second token was not run";
  EXPECT_EQ(c.draft.stored, 5);
}

TEST_F(ModelDraft, OptionsAndWhatTheySet) {
  EXPECT_EQ(drafter->longest(), 3);
  EXPECT_FALSE(drafter->trees());
  EXPECT_EQ(drafter->model->spec.loader, "draft");
  EXPECT_EQ(drafter->model->spec.options.text("model"), "");
  EXPECT_EQ(drafter->model->rows, 1);
  EXPECT_EQ(make_drafter("draft:k=2,model=a/b,c.gguf").value()->model->spec.options.text("model"), "a/b,c.gguf");
  EXPECT_FALSE(make_drafter("ngram").value()->model);
  EXPECT_EQ(make_drafter("draft:branches=3").value()->model->rows, 3);
  EXPECT_EQ(make_drafter("draft:branches=3").value()->model->depth, 4);
  EXPECT_TRUE(make_drafter("draft:k=2,branches=2").value()->trees());
  EXPECT_EQ(make_drafter("draft:k=32,branches=3").error().message,
            "drafter draft: branches: 3 branches of k=32 tokens are 96; a tree has at most 64");
  for (const auto& [text, message] : {std::pair("draft:k=0", "drafter draft: k: must be between 1 and 64, got 0"),
                                      {"draft:k=65", "drafter draft: k: must be between 1 and 64, got 65"},
                                      {"draft:n=2", "drafter draft: n: no such option; known: k, branches, model"}}) {
    const auto made = make_drafter(text);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().message, message);
  }
}

}  // namespace
}  // namespace millrace
