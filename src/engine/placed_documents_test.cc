// PlacedDocuments by itself: which rows a stream copies from the prefix index at the borders of its documents, what a
// step may copy, and which parts the executor places.
#include "engine/placed_documents_test.h"

namespace millrace {
namespace {

using namespace testing;

TEST_F(PlacedDocumentsTest, DocumentsAreTakenInAnotherOrder) {
  open(20);
  LiveStream& a = stream(kTwoDocuments, two_parts());
  EXPECT_EQ(a.sequence.kv.border, 1);
  documents_->begin(a);
  EXPECT_EQ(a.sequence.computed, 0) << "nothing is known";
  compute(a, 1);
  EXPECT_EQ(a.sequence.kv.border, 6);
  EXPECT_FALSE(documents_->worked());
  compute(a, 6);
  EXPECT_EQ(a.sequence.kv.border, 11);
  EXPECT_EQ(index_->size(), 2);
  EXPECT_EQ(executor_->calls, Calls{}) << "the first document is where it was computed";
  EXPECT_FALSE(documents_->worked());
  compute(a, 11);
  EXPECT_EQ(a.sequence.kv.border, -1);
  EXPECT_EQ(index_->size(), 4);
  EXPECT_EQ(executor_->calls, Calls{"move 5 of 3 blocks from 6 by 5"});
  EXPECT_TRUE(documents_->worked());
  EXPECT_EQ(a.sequence.prefix.cached, 0);
  expect_rows(a.sequence);

  executor_->calls.clear();
  documents_->begin_step(100);
  EXPECT_FALSE(documents_->worked());
  LiveStream& b = stream(kOtherOrder, two_parts());
  documents_->begin(b);
  EXPECT_EQ(b.sequence.computed, 11);
  EXPECT_EQ(b.sequence.kv.border, -1);
  EXPECT_EQ(b.sequence.prefix.cached, 11);
  EXPECT_EQ(b.sequence.progress.furthest, 11);
  EXPECT_EQ(executor_->calls, Calls{"move 5 of 3 blocks from 6 by 5"});
  EXPECT_TRUE(documents_->worked());
  EXPECT_EQ(index_->size(), 4) << "nothing is left twice";
  expect_rows(b.sequence);
  EXPECT_EQ(checked(), "");
}

TEST_F(PlacedDocumentsTest, AStepCopiesAndMovesOnlySoManyTokens) {
  open(20);
  LiveStream& a = stream(kTwoDocuments, two_parts());
  for (const int64_t end : {1, 6, 11}) compute(a, end);
  LiveStream& b = stream(kOtherOrder, two_parts());
  executor_->calls.clear();
  documents_->begin_step(3);
  documents_->begin(b);
  EXPECT_EQ(b.sequence.computed, 3);
  EXPECT_EQ(b.sequence.kv.border, 3) << "it waits where it is";
  documents_->run(b);
  EXPECT_EQ(b.sequence.computed, 3) << "nothing is left of this step";
  documents_->begin_step(3);
  documents_->run(b);
  EXPECT_EQ(b.sequence.computed, 6);
  EXPECT_EQ(b.sequence.kv.border, 6);
  documents_->begin_step(3);
  documents_->run(b);
  EXPECT_EQ(b.sequence.computed, 9);
  EXPECT_EQ(b.sequence.kv.border, 9);
  EXPECT_EQ(executor_->calls, Calls{});
  documents_->begin_step(2);
  documents_->run(b);
  EXPECT_EQ(b.sequence.computed, 11);
  EXPECT_EQ(b.sequence.kv.border, 11) << "the move is for the next step";
  EXPECT_EQ(executor_->calls, Calls{});
  documents_->begin_step(1);
  documents_->run(b);
  EXPECT_EQ(b.sequence.kv.border, -1);
  EXPECT_EQ(executor_->calls, Calls{"move 5 of 3 blocks from 6 by 5"});
  EXPECT_EQ(b.sequence.prefix.cached, 11);
  expect_rows(b.sequence);
  // A move counts like a copy: another stream has nothing left.
  LiveStream& c = stream(kOtherOrder, two_parts());
  documents_->begin_step(11);
  documents_->begin(c);
  EXPECT_EQ(c.sequence.computed, 11);
  EXPECT_EQ(c.sequence.kv.border, 11);
  EXPECT_EQ(checked(), "");
}

// Two streams share one step's budget: 16 tokens are one stream's 11 and its move of 5.
TEST_F(PlacedDocumentsTest, MovedTokensCountToo) {
  open(20);
  LiveStream& a = stream(kTwoDocuments, two_parts());
  for (const int64_t end : {1, 6, 11}) compute(a, end);
  for (const int64_t budget : {16, 17}) {
    LiveStream &b = stream(kOtherOrder, two_parts()), &c = stream(kOtherOrder, two_parts());
    documents_->begin_step(budget);
    documents_->begin(b);
    EXPECT_EQ(b.sequence.kv.border, -1);
    compute(c, 1);
    EXPECT_EQ(c.sequence.computed, budget == 16 ? 1 : 2);
    EXPECT_EQ(c.sequence.kv.border, budget == 16 ? 1 : 2);
  }
}

// Without a start, the first document is looked up when the stream begins, one token at least.
TEST_F(PlacedDocumentsTest, ADocumentAtTheBeginningIsTakenAtOnce) {
  open(20);
  const std::vector<TokenId> prompt = {10, 11, 12, 13, 14, 20, 21, 22, 30};
  const std::vector<ContextPart> parts = {part_with(0, 5, 0), part_with(5, 8, 0)};
  LiveStream& a = stream(prompt, parts);
  EXPECT_EQ(a.sequence.kv.border, 5);
  compute(a, 5);
  compute(a, 8);
  EXPECT_EQ(index_->size(), 3);
  EXPECT_EQ(executor_->calls, Calls{"move 3 of 2 blocks from 5 by 5"});
  LiveStream& b = stream(prompt, parts);
  documents_->begin_step(0);
  documents_->begin(b);
  EXPECT_EQ(b.sequence.computed, 1);
  EXPECT_EQ(b.sequence.kv.border, 1);
  documents_->begin_step(100);
  documents_->run(b);
  EXPECT_EQ(b.sequence.computed, 8);
  expect_rows(b.sequence);
  EXPECT_EQ(checked(), "");
}

// A start of six tokens: half of a block of the copy is of the start, and half of the document.
TEST_F(PlacedDocumentsTest, ACopyHoldsTheStartAndTheDocument) {
  open(30);
  const std::vector<TokenId> prompt = {1, 2, 3, 4, 5, 6, 10, 11, 12, 20, 21, 22, 23, 24, 30};
  LiveStream& a = stream(prompt, {part_with(6, 9, 6), part_with(9, 14, 6)});
  for (const int64_t end : {6, 9, 14}) compute(a, end);
  EXPECT_EQ(known_blocks(a, 0), 3);
  EXPECT_EQ(known_blocks(a, 1), 3);
  EXPECT_EQ(index_->size(), 5) << "the start's whole block is one";
  const std::vector<TokenId> other = {1, 2, 3, 4, 5, 6, 20, 21, 22, 23, 24, 10, 11, 12, 31};
  LiveStream& b = stream(other, {part_with(6, 11, 6), part_with(11, 14, 6)});
  documents_->begin(b);
  EXPECT_EQ(b.sequence.computed, 14);
  expect_rows(b.sequence);
  EXPECT_EQ(checked(), "");
}

TEST_F(PlacedDocumentsTest, OnlyAStreamThatHasJustBegunLooksUp) {
  open(30);
  LiveStream& a = stream(kTwoDocuments, two_parts());
  for (const int64_t end : {1, 6, 11}) compute(a, end);
  LiveStream& waits = stream(kTwoDocuments, two_parts());
  waits.sequence.phase = StreamPhase::waiting;
  documents_->begin(waits);
  EXPECT_EQ(waits.sequence.computed, 0);
  LiveStream& plain = stream(kTwoDocuments, {});
  EXPECT_EQ(plain.sequence.kv.border, -1);
  documents_->begin(plain);
  EXPECT_EQ(plain.sequence.computed, 0);
  LiveStream& apart = stream(kTwoDocuments, two_parts());
  apart.sequence.request.cache_prompt = false;
  documents_->begin(apart);
  EXPECT_EQ(apart.sequence.computed, 0);
  // Documents that do not see what the copy has before them.
  LiveStream& alone = stream(kTwoDocuments, two_parts());
  alone.context.parts[0].sees = {{1, 6}};
  documents_->begin(alone);
  EXPECT_EQ(alone.sequence.computed, 0);
  compute(alone, 1);
  EXPECT_EQ(alone.sequence.computed, 1);
  EXPECT_EQ(alone.sequence.kv.border, 6);
  // Another scope has none of these rows.
  LiveStream& foreign = stream(kTwoDocuments, two_parts());
  foreign.sequence.prefix.scope = 7;
  documents_->begin(foreign);
  EXPECT_EQ(foreign.sequence.computed, 0);
  LiveStream& late = stream(kTwoDocuments, two_parts());
  late.sequence.progress.furthest = 100;
  documents_->begin(late);
  EXPECT_EQ(late.sequence.computed, 11);
  EXPECT_EQ(late.sequence.prefix.cached, 0) << "it was further before it was preempted";
  EXPECT_EQ(late.sequence.progress.furthest, 100);
  EXPECT_EQ(checked(), "");
}

// Parts whose rows the executor keeps: the stream waits for them, and takes as many as the step has room for.
TEST_F(PlacedDocumentsTest, PlacedPartsComeFromTheExecutor) {
  open(20);
  LiveStream& a = stream(kTwoDocuments, two_parts());
  a.context.placed = true;
  documents_->begin_step(8);
  documents_->begin(a);
  EXPECT_EQ(executor_->calls, Calls{}) << "the start comes first";
  executor_->held_cost = 5;
  compute(a, 1);
  EXPECT_EQ(executor_->calls, (Calls{"hold 1 with 8", "put 3 of 1"}));
  EXPECT_EQ(a.sequence.computed, 4);
  EXPECT_EQ(a.sequence.kv.border, 4);
  EXPECT_EQ(a.sequence.kv.blocks.size(), 1u);
  EXPECT_EQ(a.sequence.prefix.cached, 0);
  EXPECT_EQ(loop_.stats.prompt_tokens, 5);
  EXPECT_TRUE(documents_->worked());
  executor_->calls.clear();
  executor_->held_cost = 0;
  executor_->known = 2;
  documents_->begin_step(3);
  documents_->run(a);
  EXPECT_EQ(executor_->calls, (Calls{"hold 1 with 3", "put 2 of 1", "hold 6 with 1", "put 1 of 6"}));
  EXPECT_EQ(a.sequence.computed, 7);
  EXPECT_EQ(a.sequence.kv.blocks.size(), 2u);
  EXPECT_EQ(a.sequence.prefix.cached, 3) << "two, and one of the next";
  EXPECT_EQ(a.sequence.progress.furthest, 7);
  EXPECT_EQ(loop_.stats.prompt_tokens, 5);
  executor_->calls.clear();
  documents_->begin_step(100);
  documents_->run(a);
  EXPECT_EQ(executor_->calls, (Calls{"hold 6 with 100", "put 4 of 6"}));
  EXPECT_EQ(a.sequence.computed, 11);
  EXPECT_EQ(a.sequence.kv.border, -1);
  EXPECT_EQ(a.sequence.prefix.cached, 5);
  EXPECT_EQ(index_->size(), 0) << "the index has no rows of them";
}

TEST_F(PlacedDocumentsTest, AStreamWaitsForItsPlacedPart) {
  open(3);
  LiveStream& a = stream(kTwoDocuments, two_parts());
  a.context.placed = true;
  executor_->complete = false;
  documents_->begin_step(8);
  compute(a, 1);
  EXPECT_EQ(executor_->calls, Calls{"hold 1 with 8"});
  EXPECT_EQ(a.sequence.computed, 1);
  EXPECT_FALSE(documents_->worked()) << "nothing was computed of it";
  executor_->held_cost = 2;
  documents_->run(a);
  EXPECT_TRUE(documents_->worked());
  EXPECT_EQ(loop_.stats.prompt_tokens, 2);
  executor_->complete = true;
  executor_->held_cost = 6;
  executor_->calls.clear();
  documents_->run(a);
  EXPECT_EQ(executor_->calls, Calls{"hold 1 with 6"}) << "and nothing is left to place it in this step";
  EXPECT_EQ(a.sequence.computed, 1);
  executor_->held_cost = 0;
  executor_->calls.clear();
  LiveStream& other = stream(std::vector<TokenId>(8, 5), {});
  ASSERT_TRUE(ledger_->reserve(other, 8));
  documents_->begin_step(100);
  documents_->run(a);
  EXPECT_EQ(executor_->calls, Calls{"hold 1 with 100"}) << "no blocks for it";
  EXPECT_EQ(a.sequence.computed, 1);
}

}  // namespace
}  // namespace millrace
