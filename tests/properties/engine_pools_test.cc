// Same request, same bits, whatever the block size and however the pool lays blocks out: blocks of 1 to 64 tokens,
// paged and contiguous, with streams that share a prefix, come back from preemption and evict each other.
#include "properties/stream_bits.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

constexpr int64_t kTurns = 3;

class EnginePools : public ::testing::TestWithParam<const char*> {};

TEST_P(EnginePools, ResultsDoNotDependOnBlocks) {
  const auto loaded = LanguageModel::load(golden_model("smollm3"), {.threads = 1, .context = 512});
  ASSERT_TRUE(loaded.ok());
  const auto model = *loaded;
  const int64_t vocab = model->info().vocab;
  std::map<RequestId, Shown> expected;
  for (const char* pool : {"paged", "virtual"}) {
    for (int64_t block : {16, 1, 32, 64}) {
      for (const bool tight : {false, true}) {
        EngineOptions o = options(1, 40, block);
        o.context = 512;
        o.kv_pool = pool;
        o.kv_format = GetParam();
        o.max_streams = 4;
        o.policy = "fcfs:reserve=prompt";
        if (tight) o.kv_tokens = 400;
        auto core = make_core(model, o);
        ASSERT_TRUE(core);
        if (const int64_t page = core->kv().layout().block_tokens;
            tight && page > block) {  // pages are larger: use six
          o.kv_tokens = 6 * page;
          core = make_core(model, o);
        }
        RequestId id = 1;
        std::map<RequestId, Shown> shown;
        for (int64_t turn = 0; turn < kTurns; ++turn) {  // later turns find the blocks of earlier ones
          for (int64_t i = 0; i < 5; ++i) {
            Request request = make_request(i % 2, 200, 60, vocab);
            request.prompt.resize(static_cast<size_t>(100 + 10 * i));
            request.sampling.seed = static_cast<uint64_t>(i);
            ASSERT_TRUE(core->add(id++, request).ok());
          }
          std::vector<TokenEvent> events;
          while (!core->idle()) {
            events.clear();
            const StepPlan plan = core->step(events);
            auto blocks = core->check_blocks();
            ASSERT_TRUE(blocks.ok()) << blocks.error().message;
            const float* row = core->last_logits();
            for (const auto& chunk : plan.chunks) {
              if (!chunk.sample) continue;
              shown[chunk.request].logits.emplace_back(row, row + vocab);
              row += vocab;
            }
            for (const auto& event : events)
              if (event.token >= 0) shown[event.request].tokens.push_back(event.token);
          }
        }
        ASSERT_EQ(shown.size(), static_cast<size_t>(5 * kTurns));
        if (expected.empty()) expected = shown;
        for (const auto& [request, one] : shown) {
          ASSERT_EQ(one.tokens.size(), 60u);
          EXPECT_TRUE(one.same_bits(expected[(request - 1) % 5 + 1]))
              << pool << ", blocks of " << block << (tight ? ", tight" : "") << ": " << request;
        }
        EXPECT_GT(core->stats().cached_tokens, 0) << pool << ", blocks of " << block;
        if (tight) {
          EXPECT_GT(core->stats().preemptions, 0) << pool << ", blocks of " << block;
        }
      }
    }
  }
}

// Random arrivals, answers that share their prompt, cancellations, and preemptions at any moment, with and without the
// tier, in a few pages: every page is accounted for after each step, and streams have the same results as alone.
TEST(EngineVirtualPool, EveryPageIsAccountedForAndResultsDoNotChange) {
  const auto loaded = LanguageModel::load(golden_model("smollm3"), {.threads = 1, .context = 256});
  ASSERT_TRUE(loaded.ok());
  const auto model = *loaded;
  const int64_t vocab = model->info().vocab;
  EngineOptions o = options(1, 48);
  o.context = 256;
  o.kv_pool = "virtual";
  o.kv_format = "f32";
  o.max_streams = 5;
  o.kv_tokens = 9 * 64;
  o.kv_tier = memory_tier(400);
  o.policy = "fcfs:reserve=prompt";
  auto core = make_core(model, o);
  ASSERT_TRUE(core);
  ASSERT_EQ(core->kv().layout().block_tokens, 64);
  ASSERT_EQ(core->kv().total_blocks(), 9);
  uint64_t draws = 0;
  const auto draw = [&](int64_t n) {
    return static_cast<int64_t>(philox_uniform(11, 5, draws++) * static_cast<double>(n));
  };
  struct Outcome {
    Request request;
    Shown shown;
    bool whole = false;
  };
  std::map<RequestId, Outcome> outcomes;
  RequestId next = 1;
  int64_t forced = 0, steps = 0;
  std::vector<TokenEvent> events;
  const auto take = [&](const StepPlan& plan) {
    const float* row = core->last_logits();
    for (const auto& chunk : plan.chunks) {
      if (!chunk.sample) continue;
      outcomes[chunk.request].shown.logits.emplace_back(row, row + vocab);
      row += vocab;
    }
    for (const auto& event : events) {
      Outcome& out = outcomes[answer_stream(event.request, event.answer)];
      if (event.token >= 0) out.shown.tokens.push_back(event.token);
      out.whole |= event.finish == FinishReason::length;
    }
    events.clear();
    auto blocks = core->check_blocks();
    ASSERT_TRUE(blocks.ok()) << blocks.error().message << " after " << plan.to_string();
    ASSERT_LE(core->kv().committed_blocks(), core->kv().total_blocks());
  };
  for (; steps < 2500 || (!core->idle() && steps < 10000); ++steps) {
    if (steps < 2500 && draw(8) == 0) {
      Request request = make_request(draw(3), 20 + draw(160), 1 + draw(60), vocab);
      request.sampling.seed = static_cast<uint64_t>(steps);
      if (draw(4) == 0) request.n = 2;
      if (core->add(next, request).ok()) {
        for (int64_t answer = 0; answer < request.n; ++answer) {
          Request alone = request;
          alone.n = 1;
          alone.sampling.seed += static_cast<uint64_t>(answer);
          outcomes[answer_stream(next, answer)].request = alone;
        }
      }
      ++next;
    }
    if (next > 1 && draw(50) == 0) core->cancel(1 + static_cast<RequestId>(draw(static_cast<int64_t>(next) - 1)));
    if (next > 1 && draw(12) == 0) {
      StepPlan plan;
      plan.preempted = {{next - 1 - static_cast<RequestId>(draw(std::min<int64_t>(6, static_cast<int64_t>(next) - 1))),
                         draw(2) == 0}};
      forced += core->replay(plan, events).ok();  // refused if the stream is not running
      take({});
    }
    take(core->step(events));
    if (HasFatalFailure()) return;
  }
  ASSERT_TRUE(core->idle());
  EXPECT_GT(forced, 20);
  EXPECT_GT(core->stats().swapped_in_tokens, 0);
  EXPECT_GT(core->stats().cached_tokens, 0);
  auto alone = make_core(model, [] {
    EngineOptions same = options();
    same.context = 256;
    same.kv_format = "f32";
    return same;
  }());
  int64_t whole = 0;
  for (auto& [id, out] : outcomes) {
    ASSERT_TRUE(alone->add(1, out.request).ok());
    Shown expected = run_all(*alone, vocab)[1];
    whole += out.whole;
    ASSERT_TRUE(out.whole || out.shown.tokens.size() < expected.tokens.size() || expected.tokens.empty()) << id;
    expected.tokens.resize(out.shown.tokens.size());
    expected.logits.resize(out.shown.logits.size());
    EXPECT_TRUE(out.shown.same_bits(expected)) << id;
  }
  EXPECT_GT(whole, 50);
}

INSTANTIATE_TEST_SUITE_P(Formats, EnginePools, ::testing::Values("f16", "f32"));

}  // namespace
}  // namespace millrace
