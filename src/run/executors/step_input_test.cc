// Tests of add_chunk(): the fields of a chunk come from its stream.
#include "run/executors/step_input.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

using Positions = std::vector<int64_t>;

struct ChunkStream {
  Sequence sequence;
  ExecutorStream own;
  ContextPlan context;

  ChunkStream() {
    sequence.id = 3;
    sequence.prompt_tokens = 6;
    sequence.max_total = 20;
    sequence.tokens = {10, 11, 12, 13, 14, 15, 16};
    sequence.kv.blocks = {4, 5};
    sequence.kv.state = 2;
    sequence.kv.windows.resize(1);
    sequence.kv.windows[0].blocks = {7, 8, 9};
  }
  StepInput chunk(const PlannedChunk& planned, bool tables = true) {
    StepInput input;
    input.tables = tables;
    add_chunk({{sequence, own}, context}, planned, input);
    return input;
  }
};

TEST(StepInput, AChunkOfAPrompt) {
  ChunkStream stream;
  stream.sequence.prefix.caches = true;
  stream.sequence.kv.left_out = 1;
  const StepInput input = stream.chunk({.request = 3, .first = 2, .count = 3});
  ASSERT_EQ(input.chunks.size(), 1u);
  EXPECT_EQ(input.chunks[0], (StepChunk{.stream = 3,
                                        .first = 2,
                                        .slot = 1,
                                        .keys = 1,
                                        .tokens = 3,
                                        .blocks = 2,
                                        .windows = 1,
                                        .state = 2,
                                        .observed = true}));
  EXPECT_EQ(input.tokens, (std::vector<TokenId>{12, 13, 14}));
  EXPECT_EQ(input.positions, (Positions{2, 3, 4}));
  EXPECT_EQ(input.blocks, (std::vector<BlockId>{4, 5, 7, 8, 9}));
  EXPECT_EQ(input.windows, (std::vector<StepWindow>{{2, 3}}));
}

TEST(StepInput, WithoutTablesItHasNoBlocks) {
  ChunkStream stream;
  const StepInput input = stream.chunk({.request = 3, .first = 2, .count = 3}, false);
  EXPECT_TRUE(input.blocks.empty() && input.windows.empty());
  EXPECT_EQ(input.chunks.at(0).blocks + input.chunks.at(0).windows, 0);
  EXPECT_EQ(input.chunks.at(0).slot, 2);
  EXPECT_EQ(input.tokens.size(), 3u);
}

// Marks of tokens that the chunk lacks, because its draft was shortened, are left out.
TEST(StepInput, MarksOfStates) {
  ChunkStream stream;
  stream.sequence.kv.marks = {{0, 5}, {2, 6}, {3, 7}};
  const StepInput input = stream.chunk({.request = 3, .first = 2, .count = 3});
  EXPECT_EQ(input.chunks.at(0).marks, 2);
  EXPECT_EQ(input.marks, (std::vector<StateMark>{{0, 5}, {2, 6}}));
}

// Tokens of a tree are at the positions of their paths; a stream that is as long as it may be is not sampled from.
TEST(StepInput, DraftedTokens) {
  ChunkStream stream;
  stream.sequence.draft.tokens = {20, 21, 22};
  const PlannedChunk planned{.request = 3, .first = 6, .count = 4, .sample = true, .drafted = 3};
  StepInput chain = stream.chunk(planned);
  EXPECT_EQ(chain.tokens, (std::vector<TokenId>{16, 20, 21, 22}));
  EXPECT_EQ(chain.positions, (Positions{6, 7, 8, 9}));
  EXPECT_EQ(chain.chunks.at(0).tree, 0);
  EXPECT_TRUE(chain.chunks[0].samples && chain.chunks[0].answers && !chain.chunks[0].sees);
  EXPECT_EQ(chain.chunks[0].outputs, 4);
  stream.sequence.draft.parents = {-1, -1, 1};
  stream.sequence.max_total = 7;
  const StepInput tree = stream.chunk(planned);
  EXPECT_EQ(tree.tokens, chain.tokens);
  EXPECT_EQ(tree.positions, (Positions{6, 7, 7, 8}));
  EXPECT_EQ(tree.parents, (std::vector<int32_t>{-1, -1, 1}));
  EXPECT_EQ(tree.chunks.at(0).tree, 3);
  EXPECT_TRUE(tree.chunks[0].sees && !tree.chunks[0].samples);
}

// A document's tokens are at lower positions and see their part; those behind it see the plan's segments.
TEST(StepInput, PartsOfAContext) {
  ChunkStream stream;
  stream.context.parts = {{.begin = 1, .end = 4, .moved = 1, .sees = {{1, 4}}}};
  stream.context.moved = 2;
  const StepInput part = stream.chunk({.request = 3, .first = 2, .count = 2});
  EXPECT_EQ(part.positions, (Positions{1, 2}));
  EXPECT_EQ(part.segments, (std::vector<KeySegment>{{1, 4}}));
  EXPECT_EQ(part.chunks.at(0).keys, 1);
  const StepInput behind = stream.chunk({.request = 3, .first = 4, .count = 2});
  EXPECT_EQ(behind.positions, (Positions{2, 3}));
  EXPECT_FALSE(behind.chunks.at(0).sees);
  EXPECT_EQ(behind.chunks.at(0).keys, 4);
}

}  // namespace
}  // namespace millrace
