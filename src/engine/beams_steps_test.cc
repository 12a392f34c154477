// Beam search through the engine on a scripted executor: which stream continues which beam, how many blocks are used,
// and the final events.
#include "engine/scripted_engine_test.h"

namespace millrace {
namespace {

using namespace testing;

constexpr TokenId kEnd = 9;

// Likely next tokens by last token. 1 is the better start, 2 the better answer: 2 3 ends, 1 continues for long.
std::vector<TokenLogprob> next_tokens(const std::vector<TokenId>& tokens) {
  switch (tokens.back()) {
    case 1: return {{4, -1.0f}, {5, -1.25f}, {6, -4.0f}, {7, -5.0f}};
    case 2: return {{3, -0.25f}, {8, -6.0f}, {7, -7.0f}, {6, -8.0f}};
    case 3: return {{kEnd, -0.25f}, {4, -5.0f}, {5, -6.0f}, {6, -7.0f}};
    case 4: return {{4, -0.5f}, {5, -0.75f}, {kEnd, -4.0f}, {6, -5.0f}};
    case 5: return {{4, -1.0f}, {kEnd, -1.5f}, {6, -5.0f}, {7, -6.0f}};
    default: return {{1, -0.5f}, {2, -1.0f}, {4, -3.0f}, {5, -4.0f}};
  }
}

Request search(TokenId first, int64_t prompt, int64_t answer, int64_t beams, int64_t n) {
  Request request = scripted_request(first, prompt, answer);
  request.beams = beams;
  request.n = n;
  return request;
}

Script script() {
  Script s;
  s.likeliest = next_tokens;
  s.end_tokens = {kEnd};
  return s;
}

EngineOptions machine(int64_t blocks, bool prefixes = false) {
  EngineOptions o = scripted_options(blocks);
  o.prefix_cache = prefixes;
  return o;
}

Lines event_lines(const ScriptedEngine& e) {
  Lines lines;
  for (const TokenEvent& event : e.all) {
    lines.push_back(fmt::format("{}.{} {} {} {}", event.request, event.answer, event.token, event.text,
                                finish_reason_name(event.finish)));
    if (event.finish != FinishReason::none)
      lines.back() +=
          fmt::format(" {:.4f} of {}{}", event.score, event.timings.generated_tokens, event.last ? ", last" : "");
  }
  return lines;
}

TEST(BeamsSteps, MoveBetweenStreamsAndShareCommonBlocks) {
  ScriptedEngine e(machine(30), nullptr, script());
  e.add(1, search(1000, 6, 5, 3, 3));
  Lines blocks;
  Lines lines;
  while (!e.core->idle()) {
    const std::string plan = e.step();
    lines.push_back(plan + " | " + e.streams());
    blocks.push_back(e.blocks().substr(0, 15));
  }
  EXPECT_EQ(lines, (Lines{"admit 1; 1:[0+6]* | 1 runs 6/7 2, 1.1 runs 6/7 2, 1.2 runs 6/7 2",
                          "1:[6+1]* 1.1:[6+1]* 1.2:[6+1]* | 1 runs 7/8 2, 1.1 runs 7/8 2, 1.2 runs 7/8 2",
                          "1:[7+1]* 1.1:[7+1]* 1.2:[7+1]* | 1 runs 8/9 2, 1.1 runs 8/9 2, 1.2 runs 8/9 2",
                          "1:[8+1]* 1.1:[8+1]* 1.2:[8+1]* | 1 runs 9/10 3, 1.1 runs 9/10 3, 1.2 runs 9/10 3",
                          "1:[9+1]* 1.1:[9+1]* 1.2:[9+1]* | "}));
  EXPECT_EQ(blocks,
            (Lines{"3 1 1 1 0 0 0 0", "3 1 1 1 0 0 0 0", "3 2 0 1 0 0 0 0", "3 3 1 0 1 1 0 0", "0 0 0 0 0 0 0 0"}));
  EXPECT_EQ(event_lines(e),
            (Lines{"1.0 2 <2> ", "1.0 3 <3> ", "1.0 9 <9>. stop -0.5000 of 3", "1.1 1 <1> ", "1.1 4 <4> ", "1.1 4 <4> ",
                   "1.1 4 <4> ", "1.1 4 <4>. length -0.6000 of 5", "1.2 1 <1> ", "1.2 4 <4> ", "1.2 4 <4> ",
                   "1.2 4 <4> ", "1.2 5 <5>. length -0.6500 of 5, last"}));
  EXPECT_EQ(e.figures(), "steps 5 prompt 6 cached 0 generated 15 preempted 0 again 0 out 0 in 0");
}

TEST(BeamsSteps, LengthLimitReturnsLiveBeams) {
  ScriptedEngine e(machine(30), nullptr, script());
  Request request = search(1000, 6, 2, 2, 1);
  request.ignore_eos = true;
  e.add(1, request);
  e.run();
  EXPECT_EQ(event_lines(e), (Lines{"1.0 2 <2> ", "1.0 3 <3>. length -0.6250 of 2, last"}));
  EXPECT_EQ(e.figures(), "steps 2 prompt 6 cached 0 generated 4 preempted 0 again 0 out 0 in 0");
}

TEST(BeamsSteps, ScoresAreNormalizedByLengthPenalty) {
  for (const auto& [penalty, score] : {std::pair(0.0, "-1.5000"), {1.0, "-0.5000"}, {2.0, "-0.1667"}}) {
    ScriptedEngine e(machine(30), nullptr, script());
    Request request = search(1000, 6, 3, 2, 1);
    request.length_penalty = penalty;
    e.add(1, request);
    e.run();
    EXPECT_EQ(e.all.back().finish, FinishReason::stop);
    EXPECT_EQ(fmt::format("{:.4f}", e.all.back().score), score)
        << penalty;  // 2, 3 and the end token: -1.5 over three tokens
  }
}

TEST(BeamsSteps, LogprobsAreReturnedIfRequested) {
  for (int64_t wanted : {-1, 0, 2}) {
    ScriptedEngine e(machine(30), nullptr, script());
    Request request = search(1000, 6, 3, 2, 1);
    request.sampling.logprobs = wanted;
    e.add(1, request);
    e.run();
    ASSERT_EQ(e.all.size(), 3u);
    EXPECT_EQ(e.all[1].token, 3);
    EXPECT_EQ(e.all[1].logprob.logprob, wanted >= 0 ? -0.25f : 0.0f);
    ASSERT_EQ(std::ssize(e.all[1].top_logprobs), std::max<int64_t>(0, wanted));
    if (wanted == 2) {
      EXPECT_EQ(e.all[1].top_logprobs[0].token, 3);
      EXPECT_EQ(e.all[1].top_logprobs[1].token, 8);
    }
  }
}

TEST(BeamsSteps, TimingsCoverTheWholeSearch) {
  ScriptedEngine e(machine(30, true), nullptr, script());
  e.add(1, scripted_request(1000, 9, 1));
  e.run();
  e.all.clear();
  e.clock.advance_ns(4'000'000);
  Request request = search(1000, 9, 3, 2, 2);
  ASSERT_TRUE(e.core->add(2, request, e.clock.now_ns() - 2'000'000).ok());
  e.run();
  int ends = 0;
  for (const TokenEvent& event : e.all) {
    if (event.finish == FinishReason::none) continue;
    ++ends;
    EXPECT_EQ(event.timings.prompt_tokens, 9);
    EXPECT_EQ(event.timings.cached_tokens, 8);
    EXPECT_DOUBLE_EQ(event.timings.queue_seconds, 0.002);
    EXPECT_DOUBLE_EQ(event.timings.prefill_seconds, 0.001);
    EXPECT_DOUBLE_EQ(event.timings.decode_seconds, 0.002);
    EXPECT_DOUBLE_EQ(event.timings.first_token_seconds, 0.003);
    EXPECT_EQ(event.made_ns, e.clock.now_ns());
  }
  EXPECT_EQ(ends, 2);
  EXPECT_EQ(e.core->stats().cached_tokens, 8);
}

TEST(BeamsSteps, CancellationReturnsTheBestSoFar) {
  ScriptedEngine e(machine(30), nullptr, script());
  e.add(1, search(1000, 6, 8, 3, 2));
  e.add(2, search(2000, 6, 8, 2, 1));
  e.step();
  e.step();
  e.core->cancel(1);
  e.step();
  EXPECT_EQ(event_lines(e), (Lines{"1.0 2 <2> ", "1.0 3 <3>. cancelled -0.6250 of 2", "1.1 1 <1> ",
                                   "1.1 4 <4>. cancelled -0.7500 of 2, last"}));
  e.core->cancel(2);
  e.step();
  EXPECT_TRUE(e.core->idle());
  EXPECT_EQ(e.core->stats().kv_blocks_free, 30);
}

TEST(BeamsSteps, SearchThatNeverStartedReturnsAnEmptyAnswer) {
  ScriptedEngine e(machine(30), nullptr, script());
  e.add(1, search(1000, 6, 8, 3, 2));
  e.core->cancel(1);
  e.step();
  EXPECT_EQ(event_lines(e), (Lines{"1.0 -1 . cancelled 0.0000 of 0", "1.1 -1 . cancelled 0.0000 of 0, last"}));
  Request late = search(1000, 6, 8, 2, 2);
  late.time_limit_seconds = 0.0025;
  e.add(2, late);
  e.all.clear();
  e.run();
  EXPECT_EQ(event_lines(e), (Lines{"2.0 2 <2> ", "2.0 3 <3> ", "2.0 9 <9>. stop -0.5000 of 3", "2.1 1 <1> ",
                                   "2.1 4 <4> ", "2.1 4 <4>. time_limit -0.6667 of 3, last"}));
}

// Blocks reserved for a search are not used to admit other streams, and the search's streams count as running.
TEST(BeamsSteps, ReservedBlocksAreNotGivenToOthers) {
  ScriptedEngine e(machine(12), nullptr, script());
  e.add(1, search(1000, 6, 6, 3, 1));       // three times three blocks
  e.add(2, scripted_request(2000, 10, 2));  // three blocks
  e.add(3, scripted_request(3000, 2, 1));
  EXPECT_EQ(
      e.watch(),
      (Lines{
          "admit 1 2; 1:[0+6]* 2:[0+10]* | 1 runs 6/7 2, 1.1 runs 6/7 2, 1.2 runs 6/7 2, 2 runs 10/11 3, 3 waits 0/2 0",
          "1:[6+1]* 1.1:[6+1]* 1.2:[6+1]* 2:[10+1]* | 1 runs 7/8 2, 1.1 runs 7/8 2, 1.2 runs 7/8 2, 3 waits 0/2 0",
          "admit 3; 1:[7+1]* 1.1:[7+1]* 1.2:[7+1]* 3:[0+2]* | 1 runs 8/9 2, 1.1 runs 8/9 2, 1.2 runs 8/9 2",
          "1:[8+1]* 1.1:[8+1]* 1.2:[8+1]* | 1 runs 9/10 3, 1.1 runs 9/10 3, 1.2 runs 9/10 3",
          "1:[9+1]* 1.1:[9+1]* 1.2:[9+1]* | 1 runs 10/11 3, 1.1 runs 10/11 3, 1.2 runs 10/11 3",
          "1:[10+1]* 1.1:[10+1]* 1.2:[10+1]* | "}));
  ScriptedEngine few(machine(11), nullptr, script());
  few.add(1, search(1000, 6, 6, 3, 1));
  few.add(2, scripted_request(2000, 10, 2));
  EXPECT_EQ(few.watch(3),
            (Lines{"admit 1; 1:[0+6]* | 1 runs 6/7 2, 1.1 runs 6/7 2, 1.2 runs 6/7 2, 2 waits 0/10 0",
                   "1:[6+1]* 1.1:[6+1]* 1.2:[6+1]* | 1 runs 7/8 2, 1.1 runs 7/8 2, 1.2 runs 7/8 2, 2 waits 0/10 0",
                   "1:[7+1]* 1.1:[7+1]* 1.2:[7+1]* | 1 runs 8/9 2, 1.1 runs 8/9 2, 1.2 runs 8/9 2, 2 waits 0/10 0"}));
  EngineOptions narrow = machine(40);
  narrow.max_streams = 3;
  ScriptedEngine places(narrow, nullptr, script());
  places.add(1, scripted_request(2000, 10, 2));
  places.add(2, search(1000, 6, 6, 3, 1));
  EXPECT_EQ(places.watch(3), (Lines{"admit 1; 1:[0+10]* | 1 runs 10/11 3, 2 waits 0/6 0", "1:[10+1]* | 2 waits 0/6 0",
                                    "admit 2; 2:[0+6]* | 2 runs 6/7 2, 2.1 runs 6/7 2, 2.2 runs 6/7 2"}));
}

}  // namespace
}  // namespace millrace
