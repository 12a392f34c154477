// Snapshots of an engine on a virtual clock, where each step's time and each block's owner are known.
#include <gtest/gtest.h>

#include "engine/engine_core.h"
#include "run/executors/simulated_executor.h"

namespace millrace {
namespace {

// A step takes 1 ms.
class FlatCost final : public CostModel {
 public:
  double step_seconds(const StepShape&) const override { return 0.001; }
  double swap_seconds(int64_t) const override { return 0; }
  double load_seconds(int64_t) const override { return 0; }
};

class SnapshotTest : public ::testing::Test {
 protected:
  std::unique_ptr<EngineCore> make(int64_t streams, int64_t kv_tokens = 1024, int64_t batch = 64) {
    EngineOptions o;
    o.context = 512;
    o.kv_tokens = kv_tokens;
    o.max_streams = streams;
    o.batch_tokens = batch;
    auto executor = SimulatedExecutor::create(std::make_unique<FlatCost>(), clock_, o);
    EXPECT_TRUE(executor.ok());
    auto core = EngineCore::create(std::move(*executor), o, &clock_);
    EXPECT_TRUE(core.ok()) << (core.ok() ? "" : core.error().message);
    return core.ok() ? std::move(*core) : nullptr;
  }

  static Request request(TokenId first, int64_t prompt, int64_t answer, int64_t n = 1) {
    Request r;
    for (int64_t i = 0; i < prompt; ++i) r.prompt.push_back(static_cast<TokenId>(first * 1000 + i));
    r.max_tokens = r.known_tokens = answer;
    r.n = n;
    return r;
  }

  ManualClock clock_;
  std::vector<TokenEvent> events_;
};

int64_t cells_in(const EngineSnapshot& snapshot) {
  int64_t count = 0;
  for (const CellsSnapshot& run : snapshot.cells) count += run.count;
  return count;
}

TEST_F(SnapshotTest, ReportsStepsSinceLastSnapshotWithTokensByKind) {
  auto core = make(4);
  core->snapshot();
  ASSERT_TRUE(core->add(1, request(1, 100, 10)).ok());
  core->step(events_);  // 64 of the prompt
  core->step(events_);  // 36, and the first token
  ASSERT_TRUE(core->add(2, request(2, 8, 10)).ok());
  core->step(events_);  // one token of the first stream, the whole prompt of the second
  const EngineSnapshot snapshot = core->snapshot();
  ASSERT_EQ(snapshot.steps.size(), 3u);
  EXPECT_EQ(snapshot.steps_missed, 0);
  EXPECT_EQ(snapshot.steps[0].prefill_tokens, 64);
  EXPECT_EQ(snapshot.steps[0].admitted, 1);
  EXPECT_FALSE(snapshot.steps[0].chunks[0].sampled);
  EXPECT_EQ(snapshot.steps[1].prefill_tokens, 36);
  EXPECT_EQ(snapshot.steps[1].decode_tokens, 0);
  EXPECT_TRUE(snapshot.steps[1].chunks[0].sampled);
  EXPECT_EQ(snapshot.steps[2].prefill_tokens, 8);
  EXPECT_EQ(snapshot.steps[2].decode_tokens, 1);
  EXPECT_EQ(snapshot.steps[2].streams, 2);
  EXPECT_NEAR(snapshot.steps[2].seconds, 0.001, 1e-9);
  EXPECT_GT(snapshot.steps[2].began, snapshot.steps[1].began);
  EXPECT_TRUE(core->snapshot().steps.empty());
}

TEST_F(SnapshotTest, TracksStreamsFromQueueToEnd) {
  auto core = make(1);
  core->snapshot();
  ASSERT_TRUE(core->add(1, request(1, 20, 3)).ok());
  ASSERT_TRUE(core->add(2, request(2, 20, 3)).ok());
  core->step(events_);
  EngineSnapshot snapshot = core->snapshot();
  ASSERT_EQ(snapshot.streams.size(), 2u);
  EXPECT_EQ(snapshot.streams[0].request, 1u);
  EXPECT_EQ(snapshot.streams[0].phase, StreamSnapshot::Phase::running);
  EXPECT_EQ(snapshot.streams[0].computed_tokens, 20);
  EXPECT_EQ(snapshot.streams[0].generated_tokens, 1);
  EXPECT_EQ(snapshot.streams[0].blocks, 2);
  EXPECT_GT(snapshot.streams[0].first_token, snapshot.streams[0].admitted);
  EXPECT_EQ(snapshot.streams[1].phase, StreamSnapshot::Phase::waiting);
  EXPECT_EQ(snapshot.streams[1].admitted, 0);
  core->step(events_);
  core->step(events_);
  snapshot = core->snapshot();
  ASSERT_EQ(snapshot.ended.size(), 1u);
  EXPECT_EQ(snapshot.ended[0].request, 1u);
  EXPECT_EQ(snapshot.ended[0].generated_tokens, 3);
  EXPECT_GT(snapshot.ended[0].ended, snapshot.ended[0].first_token);
  core->cancel(2);
  core->step(events_);
  snapshot = core->snapshot();
  EXPECT_TRUE(snapshot.streams.empty());
  ASSERT_EQ(snapshot.ended.size(), 1u);
  EXPECT_EQ(snapshot.ended[0].request, 2u);
}

TEST_F(SnapshotTest, ListsEveryBlockOnceWithItsHolders) {
  auto core = make(4);
  ASSERT_TRUE(core->add(1, request(1, 40, 20, 3)).ok());  // three answers share two full blocks of the prompt
  for (int i = 0; i < 3; ++i) core->step(events_);
  const EngineSnapshot snapshot = core->snapshot();
  ASSERT_EQ(snapshot.streams.size(), 3u);
  EXPECT_EQ(snapshot.blocks_per_cell, 1);
  EXPECT_EQ(cells_in(snapshot), core->kv().total_blocks());
  int64_t shared = 0, held = 0, free = 0, holders = 0;
  for (const CellsSnapshot& run : snapshot.cells) {
    if (run.streams == 3) shared += run.count;
    if (run.streams > 0) held += run.count;
    if (run.streams == 0 && !run.cached) free += run.count;
    EXPECT_EQ(run.owner >= 0, run.streams > 0);
    EXPECT_LT(run.owner, 3);
    holders += run.count * run.streams;
  }
  EXPECT_EQ(shared, 2);
  int64_t tables = 0;
  for (const StreamSnapshot& stream : snapshot.streams) tables += stream.blocks;
  EXPECT_EQ(holders, tables);
  EXPECT_EQ(free, core->kv().free_blocks());
  while (!core->idle()) core->step(events_);
  int64_t cached = 0;
  for (const CellsSnapshot& run : core->snapshot().cells) {
    EXPECT_EQ(run.owner, -1);
    if (run.cached) cached += run.count;
  }
  EXPECT_EQ(cached, core->stats().kv_blocks_cached);
}

TEST_F(SnapshotTest, ListsAreBounded) {
  auto core = make(128, 32768, 512);
  core->snapshot();
  for (RequestId id = 1; id <= 200; ++id) ASSERT_TRUE(core->add(id, request(static_cast<TokenId>(id), 2, 400)).ok());
  for (int64_t i = 0; i < kMaxSnapshotSteps + 88; ++i) core->step(events_);
  for (RequestId id = 201; id <= 300; ++id) ASSERT_TRUE(core->add(id, request(1, 2, 400)).ok());
  core->step(events_);
  EngineSnapshot snapshot = core->snapshot();
  ASSERT_EQ(static_cast<int64_t>(snapshot.steps.size()), kMaxSnapshotSteps);
  EXPECT_EQ(snapshot.steps_missed, 89);
  EXPECT_EQ(snapshot.steps.back().number, core->stats().steps);
  EXPECT_EQ(static_cast<int64_t>(snapshot.streams.size()), kMaxSnapshotStreams);
  EXPECT_GT(snapshot.streams_left_out, 0);
  for (const StepSnapshot& step : snapshot.steps)
    EXPECT_LE(static_cast<int64_t>(step.chunks.size()), kMaxSnapshotStreams);
}

TEST_F(SnapshotTest, ManyBlocksShareACell) {
  auto core = make(2, 16 * (2 * kMaxSnapshotCells + 5));
  ASSERT_TRUE(core->add(1, request(1, 20, 3)).ok());
  core->step(events_);
  const EngineSnapshot snapshot = core->snapshot();
  EXPECT_EQ(snapshot.blocks_per_cell, 3);
  EXPECT_EQ(cells_in(snapshot), (2 * kMaxSnapshotCells + 5 + 2) / 3);
  EXPECT_EQ(snapshot.cells.front().owner, 0);
}

TEST_F(SnapshotTest, RecordingStopsWithoutFurtherSnapshots) {
  auto core = make(2);
  core->snapshot();
  ASSERT_TRUE(core->add(1, request(1, 4, 300)).ok());
  core->step(events_);
  clock_.advance_ns(SnapshotRecorder::kPatienceNs);
  core->step(events_);
  core->step(events_);
  EXPECT_TRUE(core->snapshot().steps.empty());
  core->step(events_);
  EXPECT_EQ(core->snapshot().steps.size(), 1u);
}

}  // namespace
}  // namespace millrace
