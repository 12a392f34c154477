// PlacedDocuments by itself: what a stream leaves in the prefix index where a document ends, as far as blocks reach,
// and what the executor hears of moved and copied keys.
#include "engine/placed_documents_test.h"

namespace millrace {
namespace {

using namespace testing;

TEST_F(PlacedDocumentsTest, WhatIsNotCachedIsNotLeft) {
  open(20);
  LiveStream& secret = stream(kTwoDocuments, two_parts());
  secret.sequence.request.cache_prompt = false;
  for (const int64_t end : {1, 6, 11}) compute(secret, end);
  EXPECT_EQ(index_->size(), 0);
  LiveStream& alone = stream(kTwoDocuments, two_parts());
  alone.context.parts[0].sees = {{1, 6}};
  for (const int64_t end : {1, 6}) compute(alone, end);
  EXPECT_EQ(index_->size(), 0);
  EXPECT_EQ(checked(), "");
}

TEST_F(PlacedDocumentsTest, WithoutAnIndexKeysAreMovedOnly) {
  open(20, false);
  LiveStream& a = stream(kTwoDocuments, two_parts());
  documents_->begin(a);
  for (const int64_t end : {1, 6, 11}) compute(a, end);
  EXPECT_EQ(executor_->calls, Calls{"move 5 of 3 blocks from 6 by 5"});
  EXPECT_EQ(loop_.kv().free_blocks(), 17);
}

// The copy is as long as free blocks reach; then the index gives up others.
TEST_F(PlacedDocumentsTest, ACopyEndsWhereNoBlockIsFree) {
  open(4);
  LiveStream& a = stream(kTwoDocuments, two_parts());
  compute(a, 1);
  ASSERT_TRUE(ledger_->reserve(a, 11));  // three of four blocks
  compute(a, 6);
  EXPECT_EQ(index_->size(), 1);
  EXPECT_EQ(known_blocks(a, 0), 1);
  compute(a, 11);
  EXPECT_EQ(index_->size(), 1) << "the first document's copy was evicted for the second one's";
  EXPECT_EQ(known_blocks(a, 0), 0);
  EXPECT_EQ(known_blocks(a, 1), 1);
  EXPECT_EQ(loop_.kv().free_blocks(), 0);
  EXPECT_EQ(checked(), "");
}

// The rest of a copy that another stream could leave in part only.
TEST_F(PlacedDocumentsTest, ACopyIsCompletedLater) {
  open(9);
  LiveStream& a = stream(kTwoDocuments, two_parts());
  compute(a, 1);
  LiveStream& other = stream(std::vector<TokenId>(24, 5), {});
  ASSERT_TRUE(ledger_->reserve(other, 24));  // with `a` after its document, all but one
  compute(a, 6);
  EXPECT_EQ(known_blocks(a, 0), 1);
  ledger_->release(other);
  LiveStream& b = stream(kTwoDocuments, two_parts());
  documents_->begin(b);
  EXPECT_EQ(b.sequence.computed, 4) << "the start and three tokens";
  EXPECT_EQ(b.sequence.kv.border, 6);
  EXPECT_EQ(b.sequence.prefix.cached, 4);
  compute(b, 6);
  EXPECT_EQ(known_blocks(b, 0), 2);
  ledger_->release(b);
  b.sequence.computed = 0;
  LiveStream& c = stream(kTwoDocuments, two_parts());
  documents_->begin(c);
  EXPECT_EQ(c.sequence.computed, 6);
  expect_rows(c.sequence);
  EXPECT_EQ(checked(), "");
}

// Found blocks go back where the stream has no blocks for their rows.
TEST_F(PlacedDocumentsTest, AStreamWithoutBlocksTakesNothing) {
  open(6);
  LiveStream& a = stream(kTwoDocuments, two_parts());
  for (const int64_t end : {1, 6}) compute(a, end);
  EXPECT_EQ(index_->size(), 2);
  LiveStream& other = stream(std::vector<TokenId>(8, 5), {});
  ASSERT_TRUE(ledger_->reserve(other, 8));
  LiveStream& b = stream(kTwoDocuments, two_parts());
  documents_->begin(b);
  EXPECT_EQ(b.sequence.computed, 0);
  EXPECT_EQ(b.sequence.prefix.cached, 0);
  EXPECT_EQ(checked(), "");
}

TEST_F(PlacedDocumentsTest, StalePartsAndStayingOnesAreNoted) {
  open(20);
  LiveStream& a = stream(kTwoDocuments, two_parts());
  a.context.parts[1].fresh_first = 2;
  for (const int64_t end : {1, 6}) compute(a, end);
  EXPECT_TRUE(a.stale.empty());
  compute(a, 11);
  EXPECT_EQ(a.stale, std::vector<size_t>{1});
  executor_->calls.clear();
  LiveStream& b = stream(kOtherOrder, two_parts());
  b.context.parts[1].stays = true;
  documents_->begin(b);
  EXPECT_EQ(b.sequence.computed, 11);
  EXPECT_EQ(executor_->calls, Calls{});
  EXPECT_TRUE(b.stale.empty());
}

// The executor is told of copied and moved keys, because patterns summarize a block's keys at their final positions.
TEST_F(PlacedDocumentsTest, PatternsHearOfCopiedAndMovedKeys) {
  open(20);
  LiveStream& a = stream(kTwoDocuments, two_parts());
  a.sequence.prompt_apart = true;
  for (const int64_t end : {1, 6, 11}) compute(a, end);
  EXPECT_EQ(executor_->calls,
            (Calls{"changed 0 to 6 of 2 blocks", "changed 0 to 6 of 2 blocks", "move 5 of 3 blocks from 6 by 5"}));
  executor_->calls.clear();
  compute(a, 12);
  EXPECT_EQ(executor_->calls, Calls{});
  compute(a, 13);
  EXPECT_EQ(executor_->calls, Calls{"changed 0 to 13 of 4 blocks"}) << "at the end of the prompt";
  executor_->calls.clear();
  LiveStream& plain = stream(kTwoDocuments, {});
  plain.sequence.prompt_apart = true;
  compute(plain, 13);
  EXPECT_EQ(executor_->calls, Calls{});
}

}  // namespace
}  // namespace millrace
