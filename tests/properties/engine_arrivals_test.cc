// Streams that arrive, are cancelled and finish at random: every block is accounted for after every step (run_all
// checks), memory is released, and a stream's tokens and logits are the same as alone.
#include "properties/stream_bits.h"

namespace millrace {
namespace {

using namespace testing;

class EngineArrivals : public ::testing::TestWithParam<uint64_t> {};

TEST_P(EngineArrivals, LeakNothingAndDoNotAffectEachOther) {
  const auto model = load_for(golden_model("smollm3"), *select_isa());
  ASSERT_TRUE(model);
  const int64_t vocab = model->info().vocab;
  uint64_t draws = 0;
  auto draw = [&](int64_t n) {
    return static_cast<int64_t>(philox_uniform(GetParam(), 3, draws++) * static_cast<double>(n));
  };
  EngineOptions o = options(1, 16 + draw(48), 8);
  o.max_streams = 3;
  o.kv_tokens = 256;  // not enough for all at once
  o.prefix_cache = GetParam() % 2 == 0;
  auto core = make_core(model, o);
  ASSERT_TRUE(core);
  const int64_t free_before = core->kv().free_blocks();

  std::map<RequestId, Request> requests;
  std::map<RequestId, Shown> shown;
  std::map<RequestId, FinishReason> finished;
  std::vector<TokenEvent> events;
  RequestId next = 1;
  for (int step = 0; step < 400 && (next <= 10 || !core->idle()); ++step) {
    if (next <= 10 && draw(3) == 0) {
      Request request =
          make_request(draw(4), 1 + draw(40), 1 + draw(12), vocab);  // few seeds, so that prefixes are shared
      ASSERT_TRUE(core->add(next, request).ok());
      requests[next++] = std::move(request);
    }
    if (next > 1 && draw(12) == 0) core->cancel(1 + draw(next - 1));
    events.clear();
    const StepPlan& plan = core->step(events);
    const float* row = core->last_logits();
    for (const auto& chunk : plan.chunks) {
      if (!chunk.sample) continue;
      shown[chunk.request].logits.emplace_back(row, row + vocab);
      row += vocab;
    }
    for (const auto& event : events) {
      if (event.token >= 0) shown[event.request].tokens.push_back(event.token);
      if (event.finish != FinishReason::none) finished[event.request] = event.finish;
    }
    auto blocks = core->check_blocks();
    ASSERT_TRUE(blocks.ok()) << (blocks.ok() ? "" : blocks.error().message);
  }
  ASSERT_TRUE(core->idle());
  ASSERT_EQ(finished.size(), requests.size());
  if (!o.prefix_cache) {
    EXPECT_EQ(core->kv().free_blocks(), free_before);
  }

  int64_t whole = 0;
  for (const auto& [id, reason] : finished) {
    EXPECT_NE(reason, FinishReason::error) << id;
    auto alone = make_core(model, options());
    ASSERT_TRUE(alone->add(id, requests[id]).ok());
    Shown expected = run_all(*alone, vocab)[id];
    if (reason == FinishReason::cancelled) {  // the tokens so far are a prefix of the full answer
      ASSERT_LE(shown[id].tokens.size(), expected.tokens.size());
      expected.tokens.resize(shown[id].tokens.size());
      EXPECT_EQ(shown[id].tokens, expected.tokens) << id;
    } else {
      EXPECT_TRUE(shown[id].same_bits(expected)) << id;
      ++whole;
    }
  }
  EXPECT_GT(whole, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, EngineArrivals, ::testing::Range<uint64_t>(1, 7));

}  // namespace
}  // namespace millrace
