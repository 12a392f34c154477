// Same request, same bits, whatever size blocks have and however the pool lays them out: blocks of 1 to 64 tokens, paged
// and contiguous, with streams that share a beginning, come back from preemption and evict each other.
#include "properties/stream_bits.h"

namespace millrace {
namespace {

using namespace testing;

constexpr int64_t kTurns = 3;

class EnginePools : public ::testing::TestWithParam<const char*> {};

TEST_P(EnginePools, BlocksDoNotShow) {
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
        if (const int64_t page = core->kv().layout().block_tokens; tight && page > block) {  // pages are larger: six of them
          o.kv_tokens = 6 * page;
          core = make_core(model, o);
        }
        RequestId id = 1;
        std::map<RequestId, Shown> shown;
        for (int64_t turn = 0; turn < kTurns; ++turn) {  // the later ones find what the earlier ones left
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
          EXPECT_TRUE(one.same_bits(expected[(request - 1) % 5 + 1])) << pool << ", blocks of " << block << (tight ? ", tight" : "") << ": " << request;
        }
        EXPECT_GT(core->stats().cached_tokens, 0) << pool << ", blocks of " << block;
        if (tight) { EXPECT_GT(core->stats().preemptions, 0) << pool << ", blocks of " << block; }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, EnginePools, ::testing::Values("f16", "f32"));

}  // namespace
}  // namespace millrace
