// What the engine rejects: each message and its kind, invalid plans, and inconsistent block counts.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/scripted_engine_test.h"

namespace millrace {
namespace {

using namespace testing;

struct Refusal {
  const char* message;
  ErrorKind kind;
  std::function<void(Request&)> change;
};

TEST(CoreRefusals, ADraftModelThatTheExecutorDoesNotRun) {
  EngineOptions o = scripted_options(12);
  o.drafter = "draft";
  Script script;
  ManualClock clock;
  const auto made = EngineCore::create(std::make_unique<ScriptedExecutor>(script, clock, o), o, &clock);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(made.error().message,
            "drafter draft does not go with this executor: it runs no second model; use ngram or lookahead");
}

TEST(CoreRefusals, InvalidRequests) {
  constexpr ErrorKind kUser = ErrorKind::user;
  const Refusal refusals[] = {
      {"prompt: must hold at least one token", kUser, [](Request& r) { r.prompt.clear(); }},
      {"prompt: 64 tokens do not leave room for an answer in a context of 64; shorten it or raise the context", kUser,
       [](Request& r) { r.prompt.assign(64, 1); }},
      {"max_tokens: must be -1 or more, got -2", kUser, [](Request& r) { r.max_tokens = -2; }},
      {"min_tokens: must be 0 or more, got -1", kUser, [](Request& r) { r.min_tokens = -1; }},
      {"n: must be between 1 and 128, got 0", kUser, [](Request& r) { r.n = 0; }},
      {"n: must be between 1 and 128, got 129", kUser, [](Request& r) { r.n = 129; }},
      {"beams: must be between 1 and 128, got 0", kUser, [](Request& r) { r.beams = 0; }},
      {"best_of: must be between 2 and 128, got 1", kUser, [](Request& r) { r.n = 2, r.best_of = 1; }},
      {"best_of: does not go with beams, which already choose the best", kUser,
       [](Request& r) { r.beams = 2, r.best_of = 2; }},
      {"n: 3 answers of 2 beams", kUser, [](Request& r) { r.beams = 2, r.n = 3; }},
      {"length penalty: must be between -100 and 100, got 100.5", kUser,
       [](Request& r) { r.beams = 2, r.length_penalty = 100.5; }},
      {"length penalty: must be between -100 and 100, got -101", kUser,
       [](Request& r) { r.beams = 2, r.length_penalty = -101; }},
      {"deadline: must be between 0 and 1e9 seconds, got -1", kUser, [](Request& r) { r.deadline_seconds = -1; }},
      {"time limit: must be between 0 and 1e9 seconds, got 2000000000", kUser,
       [](Request& r) { r.time_limit_seconds = 2e9; }},
      {"keep: must be between 0 and 1e9 seconds, got nan", kUser, [](Request& r) { r.keep_seconds = std::nan(""); }},
      {"prompt: begins with 0", ErrorKind::unsupported, [](Request& r) { r.prompt[0] = 0; }},
      {"beams: at most 4 streams run at once, 5 asked for", kUser, [](Request& r) { r.beams = 5; }},
      {"KV cache: 49 tokens do not fit in 12 blocks of 4; ask for fewer tokens or enlarge the cache",
       ErrorKind::resource, [](Request& r) { r.max_tokens = 45; }},
      {"KV cache: 64 tokens do not fit in 12 blocks of 4; ask for fewer tokens or enlarge the cache",
       ErrorKind::resource, [](Request& r) { r.max_tokens = -1; }},
      {"KV cache: 25 tokens of 2 beams do not fit in 12 blocks of 4; ask for fewer tokens or enlarge the cache",
       ErrorKind::resource, [](Request& r) { r.max_tokens = 21, r.beams = 2; }},
  };
  ScriptedEngine e(scripted_options(12));
  for (const Refusal& refusal : refusals) {
    Request request = scripted_request(1000, 4, 4);
    refusal.change(request);
    const auto checked = e.core->check(request);
    ASSERT_FALSE(checked.ok()) << refusal.message;
    EXPECT_EQ(checked.error().message, refusal.message);
    EXPECT_EQ(checked.error().kind, refusal.kind) << refusal.message;
    EXPECT_FALSE(e.core->add(1, request).ok());
    EXPECT_TRUE(e.core->idle());
  }
}

TEST(CoreRefusals, RequestsAtTheLimitAreAccepted) {
  ScriptedEngine e(scripted_options(12));
  const std::function<void(Request&)> fit[] = {[](Request& r) { r.prompt.assign(48, 1), r.max_tokens = 0; },
                                               [](Request& r) { r.max_tokens = 44; },
                                               [](Request& r) { r.max_tokens = 20, r.beams = 2; },
                                               [](Request& r) { r.n = 128; },
                                               [](Request& r) { r.best_of = 128; },
                                               [](Request& r) { r.n = 2, r.best_of = 2; },
                                               [](Request& r) { r.beams = 4; },
                                               [](Request& r) { r.beams = 2, r.n = 2, r.best_of = 2; },
                                               [](Request& r) { r.beams = 2, r.length_penalty = -100; },
                                               [](Request& r) { r.beams = 2, r.length_penalty = 100; },
                                               [](Request& r) { r.length_penalty = 1000; },  // ignored without beams
                                               [](Request& r) { r.deadline_seconds = 1e9; },
                                               [](Request& r) { r.max_tokens = 0; }};
  for (const auto& change : fit) {
    Request request = scripted_request(1000, 4, 4);
    change(request);
    const auto checked = e.core->check(request);
    EXPECT_TRUE(checked.ok()) << (checked.ok() ? "" : checked.error().message);
  }
  EngineOptions o = scripted_options(12, 2);
  o.resident_streams = 3;
  ScriptedEngine more(o);
  Request beams = scripted_request(1000, 4, 4);
  beams.beams = 3;
  EXPECT_TRUE(more.core->check(beams).ok());
}

TEST(CoreRefusals, OneInvalidAnswerRejectsTheRequest) {
  ScriptedEngine e(scripted_options(12));
  Request request = scripted_request(1000, 4, 4);
  request.sampling.seed = 11;
  request.n = 3;  // seeds 11, 12, 13
  const auto added = e.core->add(1, request);
  ASSERT_FALSE(added.ok());
  EXPECT_EQ(added.error().message, "seed: 13");
  EXPECT_TRUE(e.core->idle());
  EXPECT_EQ(e.core->stats().waiting, 0);
}

TEST(CoreRefusals, FullQueue) {
  EngineOptions o = scripted_options(12, 1);
  o.queue = 2;
  ScriptedEngine e(o);
  for (RequestId id : {1, 2, 3}) e.add(id, scripted_request(1000, 4, 4));  // none runs yet, so none is rejected
  e.step();
  const auto refused = e.core->add(4, scripted_request(1000, 4, 4));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::resource);
  EXPECT_EQ(refused.error().message, "queue: 2 requests are waiting already; try again later");
  e.core->cancel(3);
  e.step();
  EXPECT_TRUE(e.core->add(4, scripted_request(1000, 4, 4)).ok());
}

std::string replay(ScriptedEngine& e, const std::string& text) {
  const auto plan = StepPlan::parse(text);
  EXPECT_TRUE(plan.ok()) << text;
  std::vector<TokenEvent> events;
  const auto done = e.core->replay(*plan, events);
  return done.ok() ? "" : done.error().message;
}

// Two streams run, one waits; each plan is invalid in one way.
TEST(CoreRefusals, InvalidPlans) {
  for (const char* plan : {"preempt 3;", "preempt 9;", "admit 1;", "admit 9;", "squeeze 3;", "9:[0+1]*", "1:[5+1]*",
                           "1:[6+2]*", "1:[6+1]", "3:[0+4]*", "1:[6+1]* 1:[6+1]*", "1:[6+1]* 2:[0+17]"}) {
    ScriptedEngine e(scripted_options(40, 2));
    e.add(1, scripted_request(1000, 6, 4));
    e.add(2, scripted_request(2000, 30, 4));
    e.add(3, scripted_request(3000, 4, 4));
    EXPECT_EQ(replay(e, "admit 1 2; 1:[0+6]*"), "");
    const auto before = e.core->stats().steps;
    EXPECT_EQ(replay(e, plan), std::string("step plan: does not fit the streams: ") + plan);
    EXPECT_EQ(e.core->stats().steps, before) << plan;
  }
  ScriptedEngine e(scripted_options(40, 2));
  e.add(1, scripted_request(1000, 6, 4));
  e.add(2, scripted_request(2000, 30, 4));
  EXPECT_EQ(replay(e, "admit 1 2; 1:[0+6]*"), "");
  StepPlan nothing;
  nothing.chunks = {{1, 6, 0, false}};
  EXPECT_FALSE(e.core->replay(nothing, e.events).ok());
  EXPECT_EQ(replay(e, "1:[6+1]* 2:[0+15]"), "");  // the limit is sixteen tokens a step
  EXPECT_EQ(replay(e, "squeeze 1; 2:[15+15]*"), "");
  EXPECT_EQ(e.core->stats().preemptions, 1);
  EXPECT_EQ(replay(e, "preempt 2;"), "");
  EXPECT_EQ(e.streams(), "1 waits 0/8 0 !1, 2 waits 0/31 0 !1");
}

TEST(CoreRefusals, TooManySampledChunks) {
  Script script;
  script.outputs = 1;
  ScriptedEngine e(scripted_options(40, 4), nullptr, script);
  e.add(1, scripted_request(1000, 3, 4));
  e.add(2, scripted_request(2000, 3, 4));
  EXPECT_NE(replay(e, "admit 1 2; 1:[0+3]* 2:[0+3]*"), "");
  EXPECT_EQ(replay(e, "1:[0+3]* 2:[0+2]"), "");
}

TEST(CoreRefusals, PlansAreLoggedOnePerLine) {
  const std::string path = ::testing::TempDir() + "core_refusals_plans_" + std::to_string(getpid());
  EngineOptions o = scripted_options(40, 4);
  o.record_plans = path;
  {
    ScriptedEngine e(o);
    e.add(1, scripted_request(1000, 20, 2));
    e.run();
    e.step();  // an empty engine logs no line
  }
  std::ifstream file(path);
  Lines lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  EXPECT_EQ(lines, (Lines{"admit 1; 1:[0+16]", "1:[16+4]*", "1:[20+1]*"}));
  std::filesystem::remove(path);
  o.record_plans = "/nowhere/plans";
  ManualClock clock;
  Script script;
  const auto made = EngineCore::create(std::make_unique<ScriptedExecutor>(script, clock, o), o, &clock);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message, "plans: /nowhere/plans cannot be written");
}

// Counts changed behind the engine's back.
TEST(CoreRefusals, WrongBlockCounts) {
  const auto check = [](const std::function<void(Sequence&, KvPool&)>& change) {
    ScriptedEngine e(scripted_options(12));
    Request request = scripted_request(1000, 6, 4);
    request.n = 2;
    e.add(1, request);
    e.step();
    e.step();  // blocks 0 and 1; the second answer has 0 and 2
    EXPECT_EQ(e.blocks(), "2 1 1 0 0 0 0 0 0 0 0 0");
    Sequence* first = nullptr;
    e.script.forwarded = [&](const StepInput&, auto streams) { first = const_cast<Sequence*>(streams[0]); };
    e.step();
    const Sequence before = *first;
    change(*first, *e.pool);
    const auto checked = e.core->check_blocks();
    *first = before;
    EXPECT_FALSE(checked.ok() || checked.error().kind != ErrorKind::internal);
    return checked.ok() ? "" : checked.error().message;
  };
  EXPECT_EQ(check([](Sequence& s, KvPool&) { s.kv.left_out = 1; }),
            "stream 1: 1 tokens were left out, and it may insert prefixes");
  EXPECT_EQ(check([](Sequence& s, KvPool&) { s.computed = 9; }), "stream 1: 9 tokens are stored in 2 blocks");
  EXPECT_EQ(check([](Sequence& s, KvPool&) { s.kv.blocks[1] = 5; }), "KV block 1: 1 streams counted, 0 hold it");
  EXPECT_EQ(check([](Sequence& s, KvPool&) { s.kv.shared_blocks = 0; }),
            "KV block 0: one stream has it unshared, 2 hold it");
  EXPECT_EQ(check([](Sequence&, KvPool& pool) { pool.share(1); }), "KV blocks: 5 references counted, 4 held");
  EXPECT_EQ(check([](Sequence&, KvPool& pool) { pool.release(1); }), "KV blocks: 3 references counted, 4 held");
}

// If the pool has fewer blocks than the engine counted, the last stream is preempted and nothing breaks.
TEST(CoreRefusals, MissingPoolBlockPreemptsItsStream) {
  ScriptedEngine e(scripted_options(4));
  e.add(1, scripted_request(1000, 4, 8));
  e.step();
  std::vector<BlockId> taken;
  while (e.pool->free_blocks() > 0) taken.push_back(*e.pool->allocate());
  std::vector<TokenEvent> events;
  EXPECT_EQ(e.core->step(events).to_string(), "squeeze 1;");
  EXPECT_TRUE(events.empty());
  for (BlockId block : taken) e.pool->release(block);
  EXPECT_EQ(e.streams(), "1 waits 0/5 0 !1");
  e.run();
  EXPECT_EQ(e.core->stats().generated_tokens, 8);
}

}  // namespace
}  // namespace millrace
