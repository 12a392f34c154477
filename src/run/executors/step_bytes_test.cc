// The bytes of a step: what is written is read back, and what is damaged is refused or still fits the bounds.
#include "run/executors/step_bytes.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

constexpr StepBounds kStepBounds{
    .tokens = 8, .outputs = 6, .vocab = 100, .blocks = 50, .block_tokens = 4, .groups = 2, .states = 9};

// Two tokens of a prompt, and a tree of two drafted tokens behind a stream's last one.
StepInput sample_step() {
  StepInput input;
  input.chunks = {{.stream = 7,
                   .first = 4,
                   .slot = 4,
                   .keys = 4,
                   .tokens = 2,
                   .blocks = 2,
                   .windows = 1,
                   .segments = 2,
                   .segment_heads = 2,
                   .documents = {.power = 0.5f, .most = 3},
                   .marks = 2,
                   .state = 5,
                   .sees = true,
                   .observed = true},
                  {.stream = (uint64_t{3} << 48) | 9,
                   .first = 10,
                   .slot = 7,
                   .keys = 7,
                   .tokens = 3,
                   .drafted = 2,
                   .tree = 2,
                   .outputs = 3,
                   .blocks = 3,
                   .windows = 1,
                   .sees = true,
                   .answers = true,
                   .samples = true}};
  input.tokens = {99, 0, 5, 6, 7};
  input.positions = {4, 5, 10, 11, 11};
  input.blocks = {1, 2, 3, 49, 0, 4, 5, 6, 7, 8};
  input.windows = {{4, 2}, {8, 3}};
  input.segments = {{.begin = 0, .end = 3, .scale = 0.25f, .bias = -1, .document = 2}, {.begin = 1, .end = 1}};
  input.parents = {-1, -1};
  input.marks = {{0, 8}, {1, 4}};
  input.references.resize(2);
  return input;
}

void expect_equal(const StepInput& a, const StepInput& b) {
  EXPECT_EQ(a.chunks, b.chunks);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.positions, b.positions);
  EXPECT_EQ(a.blocks, b.blocks);
  EXPECT_EQ(a.windows, b.windows);
  EXPECT_EQ(a.segments, b.segments);
  EXPECT_EQ(a.parents, b.parents);
  EXPECT_EQ(a.marks, b.marks);
  EXPECT_EQ(a.references.size(), b.references.size());
}

bool refuses(const StepInput& input, const StepBounds& bounds = kStepBounds) {
  const auto read = read_step_input(write_step(input), bounds);
  return !read.ok() && read.error().kind == ErrorKind::corrupt;
}

TEST(StepBytes, AnInputIsReadBack) {
  const auto read = read_step_input(write_step(sample_step()), kStepBounds);
  ASSERT_TRUE(read.ok()) << read.error().message;
  expect_equal(*read, sample_step());
  const auto empty = read_step_input(write_step(StepInput()), kStepBounds);
  ASSERT_TRUE(empty.ok()) << empty.error().message;
  EXPECT_TRUE(empty->chunks.empty());
}

TEST(StepBytes, TheFormatIsFrozen) {
  const std::vector<uint8_t> bytes = write_step(sample_step());
  EXPECT_EQ(bytes.size(), 4u + 8 * 8 + 2 * 120 + 5 * 4 + 5 * 8 + 10 * 4 + 2 * 16 + 2 * 28 + 2 * 4 + 2 * 12);
  EXPECT_EQ(std::string(bytes.begin(), bytes.begin() + 4), "MRI2");
  EXPECT_EQ(bytes[4], 2) << "chunks";
  EXPECT_EQ(bytes[4 + 8 * 8], 7) << "the first chunk's stream";
}

TEST(StepBytes, PartsOfAnInputAreRefused) {
  std::vector<uint8_t> bytes = write_step(sample_step());
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(read_step_input(std::span(bytes).first(size), kStepBounds).ok()) << size;
  bytes.push_back(0);
  EXPECT_FALSE(read_step_input(bytes, kStepBounds).ok());
  EXPECT_FALSE(read_step_input(write_step(StepOutput()), kStepBounds).ok());
}

// Whatever is read of damaged bytes is a step within the bounds, which has these bytes.
TEST(StepBytes, DamagedInputsAreRefusedOrFit) {
  const std::vector<uint8_t> whole = write_step(sample_step());
  int64_t refused = 0;
  for (size_t at = 0; at < whole.size(); ++at)
    for (const uint8_t flip : {0x01, 0x10, 0x80, 0xff}) {
      std::vector<uint8_t> bytes = whole;
      bytes[at] ^= flip;
      const auto read = read_step_input(bytes, kStepBounds);
      refused += !read.ok();
      if (!read.ok()) continue;
      EXPECT_EQ(write_step(*read), bytes) << at;
      for (const BlockId block : read->blocks) EXPECT_TRUE(block >= 0 && block < kStepBounds.blocks) << at;
      for (const TokenId token : read->tokens) EXPECT_TRUE(token >= 0 && token < kStepBounds.vocab) << at;
    }
  EXPECT_GT(refused, std::ssize(whole) * 2);
}

TEST(StepBytes, StepsOutOfBoundsAreRefused) {
  const std::vector<void (*)(StepInput&)> changes = {
      [](StepInput& s) { s.tokens[0] = 100; },        [](StepInput& s) { s.tokens[0] = -1; },
      [](StepInput& s) { s.blocks[0] = 50; },         [](StepInput& s) { s.blocks[9] = -1; },
      [](StepInput& s) { s.positions[2] = -1; },      [](StepInput& s) { s.parents[1] = 1; },
      [](StepInput& s) { s.parents[0] = -2; },        [](StepInput& s) { s.parents.push_back(-1); },
      [](StepInput& s) { s.tokens.push_back(1); },    [](StepInput& s) { s.chunks.pop_back(); },
      [](StepInput& s) { s.chunks[0].tokens = 3; },   [](StepInput& s) { s.chunks[0].tokens = 0; },
      [](StepInput& s) { s.chunks[0].slot = 7; },     [](StepInput& s) { s.chunks[0].slot = -1; },
      [](StepInput& s) { s.windows[1].slot = 10; },   [](StepInput& s) { s.windows[0].blocks = -1; },
      [](StepInput& s) { s.chunks[0].windows = 2; },  [](StepInput& s) { s.chunks[1].tree = 1; },
      [](StepInput& s) { s.chunks[1].drafted = 3; },  [](StepInput& s) { s.chunks[1].outputs = 4; },
      [](StepInput& s) { s.chunks[0].segments = 1; }, [](StepInput& s) { s.chunks[0].segment_heads = 0; },
      [](StepInput& s) { s.segments[0].end = -1; },   [](StepInput& s) { s.chunks[1].sees = false; },
      [](StepInput& s) { s.chunks[0].state = -2; },   [](StepInput& s) { s.chunks[0].documents.most = 17; },
      [](StepInput& s) { s.chunks[0].first = -1; },   [](StepInput& s) { s.chunks[0].blocks = INT64_MAX; },
      [](StepInput& s) { s.chunks[0].state = 9; },    [](StepInput& s) { s.chunks[0].marks = 1; },
      [](StepInput& s) { s.chunks[0].state = -1; },   [](StepInput& s) { s.chunks[0].marks = -1; },
      [](StepInput& s) { s.marks[0].row = 1; },       [](StepInput& s) { s.marks[1].row = 2; },
      [](StepInput& s) { s.marks[0].row = -1; },      [](StepInput& s) { s.marks[1].slot = 9; },
      [](StepInput& s) { s.marks[0].slot = 5; },      [](StepInput& s) { s.marks.push_back({1, 3}); },
      [](StepInput& s) { s.chunks[1].state = 3; }};
  for (size_t i = 0; i < changes.size(); ++i) {
    StepInput input = sample_step();
    changes[i](input);
    EXPECT_TRUE(refuses(input)) << i;
  }
  StepBounds bounds = kStepBounds;
  bounds.outputs = 2;
  EXPECT_TRUE(refuses(sample_step(), bounds));
  bounds = kStepBounds;
  bounds.tokens = 4;
  EXPECT_TRUE(refuses(sample_step(), bounds));
}

TEST(StepBytes, AnOutputIsReadBack) {
  const StepInput input = sample_step();
  StepOutput output;
  output.masses = {{0, 2}};
  output.shares = {0.5f, 1.5f};
  output.failed = {1};
  const std::vector<uint8_t> bytes = write_step(output);
  const auto read = read_step_output(bytes, input);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, output);
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(read_step_output(std::span(bytes).first(size), input).ok()) << size;
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::vector<uint8_t> damaged = bytes;
    damaged[at] ^= 0x81;
    const auto found = read_step_output(damaged, input);
    if (!found.ok()) continue;
    EXPECT_EQ(write_step(*found), damaged) << at;
  }
  for (const int64_t chunk : {-1, 2}) {
    output.failed = {chunk};
    EXPECT_FALSE(read_step_output(write_step(output), input).ok());
  }
  output.failed.clear();
  for (const StepMass mass : {StepMass{2, 2}, StepMass{0, 3}, StepMass{0, 1}, StepMass{0, -1}}) {
    output.masses = {mass};
    EXPECT_FALSE(read_step_output(write_step(output), input).ok());
  }
}

}  // namespace
}  // namespace millrace
