// Concurrent requests with a common prefix, step by step: one (the donor) computes the prefix, the others wait for it
// and reuse it, and continue alone if the donor stops.
#include "engine/scripted_engine_test.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

// Runs the first `streams` streams in order; can be told to skip one.
class PausingPolicy final : public SchedulerPolicy {
 public:
  explicit PausingPolicy(RequestId& paused) : paused_(paused) {}
  void share(const ScheduleView& view, int64_t budget, std::vector<Share>& out) override {
    for (const Sequence* s : view.running) {
      if (s->id == paused_ || budget <= 0) continue;
      const int64_t tokens = std::min(budget, s->remaining());
      out.push_back({s, tokens});
      budget -= tokens;
    }
  }
  const Sequence* victim(const ScheduleView&, const Sequence&) override { return nullptr; }

 private:
  RequestId& paused_;
};

Request ending(TokenId first, int64_t common, TokenId own, int64_t count, int64_t answer) {
  Request request = scripted_request(first, common, answer);
  for (int64_t i = 0; i < count; ++i) request.prompt.push_back(own + static_cast<TokenId>(i));
  return request;
}

TEST(PrefixWaits, OneStreamComputesTheCommonPrefix) {
  ScriptedEngine e(scripted_options(40));
  e.add(1, scripted_request(1000, 30, 3));
  e.add(2, ending(1000, 20, 5000, 1, 3));
  e.add(3, ending(1000, 3, 6000, 9, 2));  // less than one block in common
  e.add(4, scripted_request(1000, 30, 2));
  EXPECT_EQ(e.watch(), (Lines{"admit 1 2 3 4; 1:[0+16] | 1 runs 16/30 4, 2 held 0/21 0, 3 runs 0/12 0, 4 held 0/30 0",
                              "1:[16+14]* 3:[0+2] | 1 runs 30/31 8, 2 held 0/21 0, 3 runs 2/12 1, 4 held 0/30 0",
                              "1:[30+1]* 2:[20+1]* 3:[2+10]* 4:[28+2]* | 1 runs 31/32 8, 2 runs 21/22 6 +20, 3 runs "
                              "12/13 3, 4 runs 30/31 8 +28",
                              "1:[31+1]* 2:[21+1]* 3:[12+1]* 4:[30+1]* | 2 runs 22/23 6 +20", "2:[22+1]* | "}));
  EXPECT_EQ(e.figures(), "steps 5 prompt 45 cached 48 generated 10 preempted 0 again 0 out 0 in 0");
}

// Blocks that a running stream has computed are found at once; those it will compute are waited for.
TEST(PrefixWaits, ComputedBlocksAreFoundImmediately) {
  ScriptedEngine e(scripted_options(40));
  e.add(1, scripted_request(1000, 40, 2));
  e.step();
  e.add(2, ending(1000, 16, 5000, 3, 2));  // already computed
  e.add(3, ending(1000, 24, 6000, 3, 2));  // partly computed
  EXPECT_EQ(e.watch(), (Lines{"admit 2 3; 1:[16+16] | 1 runs 32/40 8, 2 runs 16/19 4 +16, 3 held 0/27 0",
                              "1:[32+8]* 2:[16+3]* 3:[24+3]* | 1 runs 40/41 10, 2 runs 19/20 5 +16, 3 runs 27/28 7 +24",
                              "1:[40+1]* 2:[19+1]* 3:[27+1]* | "}));
  EXPECT_EQ(e.figures(), "steps 4 prompt 46 cached 40 generated 6 preempted 0 again 0 out 0 in 0");
}

TEST(PrefixWaits, LongestCommonPrefixIsUsed) {
  ScriptedEngine e(scripted_options(60));
  e.add(1, ending(1000, 8, 5000, 30, 2));
  e.add(2, ending(1000, 12, 6000, 30, 2));
  e.add(3, ending(1000, 8, 7000, 30, 2));
  e.step();
  e.add(4, ending(1000, 12, 8000, 2, 2));
  EXPECT_EQ(e.watch(),
            (Lines{"admit 4; 1:[16+16] | 1 runs 32/38 8, 2 runs 8/42 2 +8, 3 runs 8/38 2 +8, 4 held 0/14 0",
                   "1:[32+6]* 2:[8+10] | 1 runs 38/39 10, 2 runs 18/42 5 +8, 3 runs 8/38 2 +8, 4 held 0/14 0",
                   "1:[38+1]* 2:[18+15] | 2 runs 33/42 9 +8, 3 runs 8/38 2 +8, 4 runs 12/14 3 +12",
                   "2:[33+9]* 3:[8+7] | 2 runs 42/43 11 +8, 3 runs 15/38 4 +8, 4 runs 12/14 3 +12",
                   "2:[42+1]* 3:[15+15] | 3 runs 30/38 8 +8, 4 runs 12/14 3 +12",
                   "3:[30+8]* 4:[12+2]* | 3 runs 38/39 10 +8, 4 runs 14/15 4 +12", "3:[38+1]* 4:[14+1]* | "}));
}

TEST(PrefixWaits, ShortPromptsOtherScopesAndUncachedRequestsDoNotWait) {
  ScriptedEngine e(scripted_options(40));
  e.add(1, scripted_request(1000, 4, 2));
  Request own = scripted_request(1000, 4, 2);
  own.cache_prompt = false;
  e.add(2, own);
  Request tenant = scripted_request(1000, 4, 2);
  tenant.tenant = "other";
  e.add(3, tenant);
  e.add(4, scripted_request(1000, 4, 2));
  EXPECT_EQ(e.step(), "admit 1 2 3 4; 1:[0+4]* 2:[0+4]* 3:[0+4]* 4:[0+4]*");
  e.run();
  EXPECT_EQ(e.core->stats().cached_tokens, 0);
  EXPECT_EQ(e.core->stats().kv_blocks_cached, 2);  // one per scope
}

TEST(PrefixWaits, UncachedRequestsComputeTheWholePrompt) {
  EngineOptions o = scripted_options(40);
  o.batch_tokens = 40;
  ScriptedEngine e(o);
  e.add(1, scripted_request(1000, 18, 2));
  Request own = scripted_request(1000, 18, 2);
  own.cache_prompt = false;
  e.add(2, own);
  EXPECT_EQ(e.step(), "admit 1 2; 1:[0+18]* 2:[0+18]*");
  e.run();
}

TEST(PrefixWaits, LastPromptTokenIsAlwaysComputed) {
  for (const auto& [prompt, cached] : {std::pair(8, 4), {9, 8}, {10, 8}, {12, 8}, {13, 12}}) {
    ScriptedEngine e(scripted_options(40));
    e.add(1, scripted_request(1000, 16, 1));
    e.run();
    e.add(2, scripted_request(1000, prompt, 1));
    e.run();
    EXPECT_EQ(e.all.back().timings.cached_tokens, cached) << prompt;
    EXPECT_EQ(e.core->stats().prompt_tokens, 16 + prompt - cached);
  }
}

// Streams wait for a stalled donor for four steps only.
TEST(PrefixWaits, EndWhenTheDonorStalls) {
  RequestId paused = 0;
  ScriptedEngine e(scripted_options(40), std::make_unique<PausingPolicy>(paused));
  e.add(1, scripted_request(1000, 40, 2));
  e.step();
  e.add(2, scripted_request(1000, 40, 2));
  e.step();
  paused = 1;
  EXPECT_EQ(e.watch(8), (Lines{" | 1 runs 32/40 8, 2 held 0/40 0", " | 1 runs 32/40 8, 2 held 0/40 0",
                               " | 1 runs 32/40 8, 2 held 0/40 0", " | 1 runs 32/40 8, 2 held 0/40 0",
                               " | 1 runs 32/40 8, 2 held 0/40 0", "2:[32+8]* | 1 runs 32/40 8, 2 runs 40/41 10 +32",
                               "2:[40+1]* | 1 runs 32/40 8", " | 1 runs 32/40 8"}));
  paused = 0;
  e.run();
  EXPECT_EQ(e.figures(), "steps 6 prompt 48 cached 32 generated 4 preempted 0 again 0 out 0 in 0");
}

// The count restarts with every token that the donor computes.
TEST(PrefixWaits, ContinueWhileTheDonorComputes) {
  RequestId paused = 0;
  ScriptedEngine e(scripted_options(40), std::make_unique<PausingPolicy>(paused));
  e.add(1, scripted_request(1000, 60, 2));
  e.add(2, scripted_request(1000, 60, 2));
  e.step();
  for (int i = 0; i < 2; ++i) {
    paused = 1;
    for (int k = 0; k < 4; ++k) EXPECT_EQ(e.step(), "");
    paused = 0;
    e.step();
    EXPECT_NE(e.streams().find("2 held 0/60 0"), std::string::npos) << e.streams();
  }
  e.run();
  EXPECT_EQ(e.core->stats().prompt_tokens, 60 + 4);
}

TEST(PrefixWaits, EndWhenTheDonorIsCancelled) {
  ScriptedEngine e(scripted_options(40));
  e.add(1, scripted_request(1000, 40, 2));
  e.add(2, scripted_request(1000, 40, 2));
  e.add(3, scripted_request(1000, 40, 2));
  e.step();
  e.core->cancel(1);
  EXPECT_EQ(e.watch(),
            (Lines{"2:[16+16] | 2 runs 32/40 8 +16, 3 held 0/40 0", "2:[32+8]* | 2 runs 40/41 10 +16, 3 held 0/40 0",
                   "2:[40+1]* 3:[36+4]* | 3 runs 40/41 10 +36", "3:[40+1]* | "}));
  EXPECT_EQ(e.figures(), "steps 5 prompt 44 cached 52 generated 4 preempted 0 again 0 out 0 in 0");
}

// A preempted donor leaves its computed blocks, and another stream continues.
TEST(PrefixWaits, EndWhenTheDonorIsPreempted) {
  for (bool swap : {false, true}) {
    EngineOptions o = scripted_options(20);
    o.policy = "priority:reserve=prompt";
    if (swap) o.kv_tier = memory_tier(100);
    ScriptedEngine e(o);
    if (swap) e.script.swap_seconds = 1e-3;
    e.add(1, scripted_request(1000, 40, 2));
    e.add(2, ending(1000, 30, 5000, 2, 2));
    e.step();
    Request urgent = scripted_request(3000, 15, 2);
    urgent.priority = 1;
    e.add(3, urgent);
    if (swap) {
      EXPECT_EQ(e.watch(),
                (Lines{"preempt 1~; admit 3; 3:[0+15]* | 2 held 0/32 0, 3 runs 15/16 4, 1 leaves 16/40 4 !1",
                       "3:[15+1]* 2:[16+15] | 2 runs 31/32 8 +16, 1 away 16/40 0 !1",
                       "admit 1; 2:[31+1]* | 2 runs 32/33 8 +16, 1 loads 16/40 4 !1",
                       "2:[32+1]* 1:[16+15] | 1 runs 31/40 8 !1", "1:[31+9]* | 1 runs 40/41 10 !1", "1:[40+1]* | "}));
    } else {
      EXPECT_EQ(e.watch(), (Lines{"preempt 1; admit 3; 3:[0+15]* | 2 held 0/32 0, 3 runs 15/16 4, 1 waits 0/40 0 !1",
                                  "3:[15+1]* 2:[16+15] | 2 runs 31/32 8 +16, 1 waits 0/40 0 !1",
                                  "admit 1; 2:[31+1]* 1:[28+12]* | 2 runs 32/33 8 +16, 1 runs 40/41 10 !1",
                                  "2:[32+1]* 1:[40+1]* | "}));
    }
    e.run();
  }
}

TEST(PrefixWaits, CachedBlocksAreEvictedBeforeStreamsArePreempted) {
  ScriptedEngine e(scripted_options(6));
  e.add(1, scripted_request(1000, 9, 2));
  e.run();
  EXPECT_EQ(e.core->stats().kv_blocks_cached, 2);
  e.add(2, scripted_request(2000, 17, 2));
  e.run();
  EXPECT_EQ(e.core->stats().prefix.erased_blocks, 1);
  EXPECT_EQ(e.core->cached_tokens(scripted_request(1000, 9, 1)), 4);
  EXPECT_EQ(e.core->stats().kv_blocks_cached, 5);
}

}  // namespace
}  // namespace millrace
