// Snapshots of an engine with a scripted executor: every chunk, cell and time is exact.
#include "engine/scripted_engine_test.h"

namespace millrace {
namespace {

using namespace testing;

Lines steps_seen(const EngineSnapshot& look) {
  Lines lines;
  for (const StepSnapshot& s : look.steps) {
    std::string chunks;
    for (const ChunkSnapshot& c : s.chunks)
      chunks +=
          fmt::format(" {}.{}:{}{}{}", c.request, c.answer, c.tokens, c.prefill ? "p" : "d", c.sampled ? "*" : "");
    lines.push_back(fmt::format("{} at {:.3f} for {:.3f}: prefill {} decode {} streams {} admitted {} preempted {}{}",
                                s.number, s.began, s.seconds, s.prefill_tokens, s.decode_tokens, s.streams, s.admitted,
                                s.preempted, chunks));
  }
  return lines;
}

EngineOptions growing_figures(int64_t blocks) {
  EngineOptions o = scripted_options(blocks);
  o.policy = "fcfs:reserve=prompt";
  o.prefix_cache = false;
  return o;
}

// Tokens that are computed again after a preemption count as prefill.
TEST(SnapshotFigures, StepsAndTheirChunks) {
  ScriptedEngine e(growing_figures(6));
  e.core->snapshot();
  e.add(1, scripted_request(1000, 7, 8));
  e.add(2, scripted_request(2000, 7, 8));
  e.add(3, scripted_request(3000, 3, 2));
  while (!e.core->idle()) {
    e.events.clear();
    e.core->step(e.events);
  }
  const EngineSnapshot look = e.core->snapshot();
  EXPECT_EQ(steps_seen(look),
            (Lines{"1 at 0.000 for 0.001: prefill 16 decode 0 streams 3 admitted 3 preempted 0 1.0:7p* 2.0:7p* 3.0:2p",
                   "2 at 0.001 for 0.001: prefill 1 decode 2 streams 3 admitted 0 preempted 0 1.0:1d* 2.0:1d* 3.0:1p*",
                   "3 at 0.002 for 0.001: prefill 0 decode 2 streams 2 admitted 0 preempted 1 1.0:1d* 2.0:1d*",
                   "4 at 0.003 for 0.001: prefill 0 decode 2 streams 2 admitted 0 preempted 0 1.0:1d* 2.0:1d*",
                   "5 at 0.004 for 0.001: prefill 0 decode 2 streams 2 admitted 0 preempted 0 1.0:1d* 2.0:1d*",
                   "6 at 0.005 for 0.001: prefill 0 decode 2 streams 2 admitted 0 preempted 0 1.0:1d* 2.0:1d*",
                   "7 at 0.006 for 0.001: prefill 0 decode 1 streams 1 admitted 0 preempted 1 1.0:1d*",
                   "8 at 0.007 for 0.001: prefill 0 decode 1 streams 1 admitted 0 preempted 0 1.0:1d*",
                   "9 at 0.008 for 0.001: prefill 16 decode 0 streams 2 admitted 2 preempted 0 2.0:13p* 3.0:3p",
                   "10 at 0.009 for 0.001: prefill 0 decode 2 streams 2 admitted 0 preempted 0 2.0:1d* 3.0:1d*"}));
  Lines ended;
  for (const StreamSnapshot& s : look.ended)
    ended.push_back(fmt::format("{} submitted {:.3f} admitted {:.3f} first {:.3f} ended {:.3f} !{}", s.request,
                                s.submitted, s.admitted, s.first_token, s.ended, s.preemptions));
  EXPECT_EQ(ended, (Lines{"1 submitted 0.000 admitted 0.000 first 0.001 ended 0.008 !0",
                          "2 submitted 0.000 admitted 0.000 first 0.001 ended 0.010 !1",
                          "3 submitted 0.000 admitted 0.000 first 0.002 ended 0.010 !1"}));
  EXPECT_EQ(look.steps_missed, 0);
  EXPECT_NEAR(look.now, 0.010, 1e-8);
}

TEST(SnapshotFigures, CellsAndTheirHolders) {
  ScriptedEngine e(scripted_options(12));
  Request request = scripted_request(1000, 6, 4);
  request.n = 2;
  e.add(1, request);
  e.add(2, scripted_request(2000, 9, 1));
  e.step();
  e.step();
  Lines cells;
  for (const CellsSnapshot& c : e.core->snapshot().cells)
    cells.push_back(fmt::format("{} owner {} streams {}{}", c.count, c.owner, c.streams, c.cached ? " cached" : ""));
  EXPECT_EQ(cells, (Lines{"1 owner 0 streams 2", "1 owner 0 streams 1", "2 owner -1 streams 0 cached",
                          "1 owner 1 streams 1", "7 owner -1 streams 0"}));
  EXPECT_EQ(e.core->snapshot().block_tokens, 4);
  EXPECT_EQ(e.core->snapshot().streams_left_out, 0);
}

TEST(SnapshotFigures, MissedStepsAreCountedOnce) {
  ScriptedEngine e(scripted_options(400));
  e.core->snapshot();
  for (RequestId id = 1; id <= 12; ++id) e.add(id, scripted_request(1000, 4, 58));
  while (!e.core->idle()) e.core->step(e.events);
  e.core->snapshot();
  const int64_t steps = e.core->stats().steps;
  ASSERT_LT(steps, kMaxSnapshotSteps);
  for (RequestId id = 1; id <= 48; ++id) e.add(id, scripted_request(1000, 4, 58));
  while (!e.core->idle()) e.core->step(e.events);
  const EngineSnapshot look = e.core->snapshot();
  EXPECT_EQ(std::ssize(look.steps), kMaxSnapshotSteps);
  EXPECT_EQ(look.steps_missed, e.core->stats().steps - steps - kMaxSnapshotSteps);
  EXPECT_EQ(look.ended.size(), 48u);
  e.add(99, scripted_request(1000, 4, 2));
  while (!e.core->idle()) e.core->step(e.events);
  EXPECT_EQ(e.core->snapshot().steps_missed, 0);
  EXPECT_TRUE(e.core->snapshot().ended.empty());
}

TEST(SnapshotFigures, LatestEndedStreamsAreRetained) {
  ScriptedEngine e(scripted_options(400));
  e.core->snapshot();
  for (RequestId id = 1; id <= 260; ++id) {
    e.add(id, scripted_request(1000, 1, 1));
    e.step();
  }
  const EngineSnapshot look = e.core->snapshot();
  ASSERT_EQ(look.ended.size(), SnapshotRecorder::kMaxEnded);
  EXPECT_EQ(look.ended.front().request, 5u);
  EXPECT_EQ(look.ended.back().request, 260u);
}

// A watcher is forgotten one nanosecond after three seconds.
TEST(SnapshotFigures, WatchersAreForgottenAfterThreeSeconds) {
  for (int64_t late : {0, 1}) {
    ScriptedEngine e(scripted_options(40));
    e.core->snapshot();
    e.add(1, scripted_request(1000, 1, 9));
    e.clock.advance_ns(SnapshotRecorder::kPatienceNs + late);
    e.step();
    EXPECT_EQ(e.core->snapshot().steps.size(), late ? 0u : 1u);
  }
}

TEST(SnapshotFigures, StreamsAboveTheLimitAreCounted) {
  ScriptedEngine e(scripted_options(400));
  for (RequestId id = 1; id <= 67; ++id) e.add(id, scripted_request(1000, 4, 5));
  e.step();
  const EngineSnapshot look = e.core->snapshot();
  EXPECT_EQ(std::ssize(look.streams), kMaxSnapshotStreams);
  EXPECT_EQ(look.streams_left_out, 3);
}

}  // namespace
}  // namespace millrace
