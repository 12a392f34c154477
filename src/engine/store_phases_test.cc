// The phases of a stream that asks the prefix store: each ends in every way that a stream can end, and no later than
// the store's deadline; a ticket is always given back.
#include "engine/scripted_engine_test.h"

namespace millrace {
namespace {

using namespace testing;

constexpr double kPhaseDeadline = 0.25;

EngineOptions phase_options() {
  EngineOptions o = scripted_options(12);
  o.kv_store = "ssd:path=scripted";
  return o;
}

// An engine whose store holds the eight full blocks of the prompt 1000 ... 1034, which the pool no longer has. From
// then on the store answers only when the test says so.
struct AsksAStore : ScriptedEngine {
  explicit AsksAStore(Script given = {}, bool answers = false)
      : ScriptedEngine(phase_options(), nullptr, std::move(given)) {
    add(1, scripted_request(1000, 35, 1));
    run();
    add(2, scripted_request(5000, 46, 1));
    run();
    script.puts.clear();
    all.clear();
    script.deadline = kPhaseDeadline;
    script.lookup_ready = script.load_ready = answers;
    script.waiting_helps = false;
  }
  void pass(double seconds) { clock.advance_ns(static_cast<int64_t>(seconds * 1e9)); }
  KvStoreStats store() const { return core->stats().store; }
  void expect_no_tickets() const {
    EXPECT_EQ(script.lookups_erased, script.lookups);
    EXPECT_EQ(script.erased, std::ssize(script.loads));
  }
};

TEST(StorePhases, AStreamLooksUpWhileOthersRun) {
  AsksAStore e;
  e.add(4, scripted_request(7000, 4, 9));
  e.script.lookup_ready = true;  // the other stream's
  e.step();
  e.script.lookup_ready = false;
  e.add(3, scripted_request(1000, 27, 1));
  EXPECT_EQ(e.watch(2),
            (Lines{"admit 3; 4:[4+1]* | 4 runs 5/6 2, 3 looks 0/27 0", "4:[5+1]* | 4 runs 6/7 2, 3 looks 0/27 0"}));
  EXPECT_EQ(e.store().looking_up, 1);
  EXPECT_TRUE(e.script.loads.empty());
  e.script.lookup_ready = true;
  EXPECT_EQ(e.watch(1), (Lines{"4:[6+1]* | 4 runs 7/8 2, 3 loads 0/27 6"}));
  EXPECT_EQ(e.store().looking_up, 0);
  e.script.load_ready = true;
  EXPECT_EQ(e.watch(1), (Lines{"4:[7+1]* 3:[24+3]* | 4 runs 8/9 2"}));
  e.run();
  EXPECT_EQ(e.store().late_lookups + e.store().late_loads, 0);
  e.expect_no_tickets();
}

// Requests that arrive together with one prompt ask the store once, for any answer.
TEST(StorePhases, SimultaneousRequestsLookUpOnce) {
  for (const TokenId first : {1000, 8000}) {  // stored, and not
    AsksAStore e;
    const int64_t before = e.script.lookups, computed = e.core->stats().prompt_tokens;
    e.add(3, scripted_request(first, 18, 1));
    e.add(4, scripted_request(first, 18, 1));
    EXPECT_EQ(e.watch(1), (Lines{"admit 3 4; | 3 looks 0/18 0, 4 held 0/18 0"}));
    for (int i = 0; i < 10; ++i) e.step();  // longer than a donor may stall
    EXPECT_EQ(e.streams(), "3 looks 0/18 0, 4 held 0/18 0");
    EXPECT_EQ(e.script.lookups, before + 1);
    e.script.lookup_ready = true;
    e.step();
    if (first == 1000) {
      EXPECT_EQ(e.streams(), "3 loads 0/18 4, 4 held 0/18 0");
    }
    e.script.load_ready = true;
    e.run();
    EXPECT_EQ(e.script.loads.size(), first == 1000 ? 1u : 0u);
    EXPECT_EQ(e.core->stats().prompt_tokens - computed, first == 1000 ? 2 + 2 : 18 + 2);
    e.expect_no_tickets();
  }
}

// With nothing else to run the engine waits for the answer, a little at a time.
TEST(StorePhases, AnIdleEngineWaitsForTheAnswer) {
  AsksAStore e;
  e.script.waiting_helps = true;
  e.add(3, scripted_request(1000, 35, 1));
  EXPECT_EQ(e.step(), "admit 3;");
  EXPECT_EQ(e.script.waits, 0);
  EXPECT_EQ(e.step(), "");
  EXPECT_EQ(e.script.waits, 1);
  EXPECT_EQ(e.step(), "3:[32+3]*");
}

// At the deadline, and not before, the prompt is computed.
TEST(StorePhases, ALateLookupIsGivenUp) {
  AsksAStore e;
  e.add(3, scripted_request(1000, 35, 1));
  e.step();
  e.pass(kPhaseDeadline - 1e-3);
  EXPECT_EQ(e.watch(1), (Lines{" | 3 looks 0/35 0"}));
  e.pass(1e-3);
  EXPECT_EQ(e.watch(), (Lines{"3:[0+16] | 3 runs 16/35 4", "3:[16+16] | 3 runs 32/35 8", "3:[32+3]* | "}));
  EXPECT_EQ(e.store().late_lookups, 1);
  EXPECT_EQ(e.store().late_loads, 0);
  EXPECT_TRUE(e.script.loads.empty());
  e.expect_no_tickets();
}

TEST(StorePhases, ALateLoadIsGivenUp) {
  AsksAStore e;
  e.script.lookup_ready = true;
  e.add(3, scripted_request(1000, 35, 1));
  e.step();
  e.pass(kPhaseDeadline - 1e-3);
  EXPECT_EQ(e.watch(1), (Lines{" | 3 loads 0/35 8"}));
  e.pass(1e-3);
  EXPECT_EQ(e.watch(), (Lines{"3:[0+16] | 3 runs 16/35 8", "3:[16+16] | 3 runs 32/35 8", "3:[32+3]* | "}));
  EXPECT_EQ(e.store().late_loads, 1);
  EXPECT_EQ(e.store().failed_tokens, 32);
  EXPECT_TRUE(e.script.loads_observed.empty());
  e.expect_no_tickets();
}

// A pass waits for all its layers together no longer than for the deadline, and what it computed over missing bytes
// does not count.
TEST(StorePhases, APassWaitsUntilTheDeadlineAndNoLonger) {
  Script script;
  script.joins_early = true;
  AsksAStore e(script);
  e.script.lookup_ready = true;
  e.script.layers_stall = true;
  e.script.damaged = {1000};  // the chunk runs over other bytes
  const int64_t before = e.clock.now_ns();
  e.add(3, scripted_request(1000, 35, 1));
  EXPECT_EQ(e.step(), "admit 3; 3:[32+3]*");
  EXPECT_EQ(e.clock.now_ns() - before, static_cast<int64_t>(kPhaseDeadline * 1e9) + e.script.step_ns);
  EXPECT_EQ(e.script.layer_waits, 1);
  EXPECT_TRUE(e.events.empty());
  EXPECT_EQ(e.store().late_loads, 1);
  EXPECT_EQ(e.watch(), (Lines{"3:[0+16] | 3 runs 16/35 9", "3:[16+16] | 3 runs 32/35 9", "3:[32+3]* | "}));
  e.expect_no_tickets();
}

// Blocks of a prompt are put into a shared store as soon as they are computed, once each.
TEST(StorePhases, ASharedStoreReceivesPromptsAsTheyAreComputed) {
  AsksAStore e({}, true);
  e.script.shared = true;
  e.add(3, scripted_request(1000, 44, 4));
  const auto puts = [&] {
    Lines firsts;
    for (const std::string& put : e.script.puts)
      if (put.starts_with("10")) firsts.push_back(put.substr(0, 4));
    return firsts;
  };
  EXPECT_EQ(e.watch(1), (Lines{"admit 3; | 3 loads 0/44 8"}));
  EXPECT_EQ(puts(), Lines{});
  e.step();
  EXPECT_EQ(puts(), (Lines{"1032", "1036"}));
  e.run();
  EXPECT_EQ(puts().size(), 2u);
}

struct PhaseEnd {
  const char* event;
  std::function<void(AsksAStore&)> happens;
  FinishReason finish;  // of the stream; none: it has no end, because the engine has
};

const PhaseEnd kPhaseEnds[] = {
    {"cancelled", [](AsksAStore& e) { e.core->cancel(3); }, FinishReason::cancelled},
    {"time limit", [](AsksAStore& e) { e.pass(0.1); }, FinishReason::time_limit},
    {"deadline", [](AsksAStore& e) { e.pass(kPhaseDeadline); }, FinishReason::stop},
    {"answer", [](AsksAStore& e) { e.script.lookup_ready = e.script.load_ready = true; }, FinishReason::stop},
    {"found, then late",
     [](AsksAStore& e) {
       e.script.lookup_ready = true;
       e.step();
       e.pass(kPhaseDeadline);
     },
     FinishReason::stop},
    {"all lost",
     [](AsksAStore& e) {
       for (TokenId first = 1000; first < 1032; first += 4) e.script.damaged.insert(first);
       e.script.lookup_ready = e.script.load_ready = true;
     },
     FinishReason::stop},
    {"failure of the weights",
     [](AsksAStore& e) {
       e.script.failure = Error::resource("weights: gone");
       e.script.lookup_ready = e.script.load_ready = true;
     },
     FinishReason::error},
    {"recorded plan",
     [](AsksAStore& e) {
       e.script.waiting_helps = true;
       StepPlan plan;
       plan.chunks.push_back({3, 32, 3, true});
       const auto replayed = e.core->replay(plan, e.all);
       EXPECT_TRUE(replayed.ok()) << (replayed.ok() ? "" : replayed.error().message);
     },
     FinishReason::stop},
    {"end of the engine", [](AsksAStore& e) { e.core.reset(); }, FinishReason::none},
};

TEST(StorePhases, EachEndsInEveryWay) {
  for (const StreamPhase phase : {StreamPhase::looking_up, StreamPhase::loading}) {
    for (const PhaseEnd& end : kPhaseEnds) {
      SCOPED_TRACE(fmt::format("{} {}", phase == StreamPhase::loading ? "loading" : "looking up", end.event));
      AsksAStore e;
      e.script.lookup_ready = phase == StreamPhase::loading;
      Request request = scripted_request(1000, 35, 2);
      if (end.finish == FinishReason::time_limit) request.time_limit_seconds = 0.05;
      e.add(3, request);
      e.step();
      ASSERT_NE(e.streams().find(phase == StreamPhase::loading ? "3 loads" : "3 looks"), std::string::npos);
      end.happens(e);
      if (e.core) {
        e.run();
        EXPECT_EQ(e.core->stats().store.looking_up, 0);
        EXPECT_EQ(e.core->stats().running, 0);
        EXPECT_TRUE(e.all.back().last);
        EXPECT_EQ(e.all.back().finish, end.finish);
      }
      e.expect_no_tickets();
    }
  }
}

}  // namespace
}  // namespace millrace
