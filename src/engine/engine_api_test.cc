// The engine with its thread: limits on requests and their memory, sinks, time-outs, cancellation and destruction. A
// blocking sink holds the engine's thread, so that the set of open requests is known.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>

#include "base/memory_accounts.h"
#include "engine/engine_core.h"
#include "kv/token_eviction.h"
#include "millrace/engine.h"
#include "run/plan/memory_plan.h"
#include "test_paths.h"

namespace millrace {
namespace {

constexpr auto kPatience = std::chrono::seconds(20);

std::shared_ptr<const LanguageModel> golden(int64_t memory = 0) {
  auto model = LanguageModel::load(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama3/model.gguf",
                                   {.threads = 1, .context = 64, .memory = memory});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return model.ok() ? *model : nullptr;
}

Request api_request(int64_t answer, int64_t n = 1) {
  Request request;
  request.prompt = {1, 2, 3};
  request.max_tokens = answer;
  request.ignore_eos = true;
  request.n = n;
  return request;
}

// An engine whose thread blocks in a sink until it is released.
class HeldEngine {
 public:
  explicit HeldEngine(const EngineOptions& given, int64_t memory = 0, const Request& first = api_request(60)) {
    EngineOptions options = given;
    options.threads = 1;
    auto made = Engine::create(golden(memory), options);
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    engine = std::move(*made);
    std::promise<void> begun;
    auto id = engine->submit(first, [this, &begun, once = false](TokenEvent&& event) mutable {
      if (!once) {
        once = true;
        begun.set_value();
        held_.wait();
      }
      if (event.last) ended.set_value(std::move(event));
    });
    EXPECT_TRUE(id.ok());
    first_id = *id;
    begun.get_future().wait();
  }
  ~HeldEngine() {
    let_on();
    engine.reset();
  }
  void let_on() {
    if (!std::exchange(free_, true)) hold_.set_value();
  }

  std::unique_ptr<Engine> engine;
  RequestId first_id = 0;
  std::promise<TokenEvent> ended;  // of the first request

 private:
  std::promise<void> hold_;
  std::shared_future<void> held_ = hold_.get_future().share();
  bool free_ = false;
};

std::string refusal(Engine& engine, const Request& request) {
  auto stream = engine.submit(request);
  if (stream.ok()) return "";
  EXPECT_EQ(stream.error().kind, ErrorKind::resource);
  return stream.error().message;
}

TEST(EngineApi, AcceptsUpToRunningPlusWaitingLimit) {
  EngineOptions options;
  options.max_streams = 2;
  options.queue = 1;
  HeldEngine held(options);
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 2; ++i) {
    auto stream = held.engine->submit(api_request(3));
    ASSERT_TRUE(stream.ok());
    EXPECT_EQ((*stream)->id(), held.first_id + 1 + static_cast<RequestId>(i));
    streams.push_back(std::move(*stream));
  }
  EXPECT_EQ(refusal(*held.engine, api_request(3)), "queue: 3 requests are open already; try again later");
  bool timed_out = false;
  EXPECT_FALSE(streams[0]->next(std::chrono::milliseconds(1), &timed_out));
  EXPECT_TRUE(timed_out);
  held.let_on();
  for (int i = 0; i < 3; ++i) {
    const auto event = streams[0]->next(kPatience, &timed_out);
    ASSERT_TRUE(event);
    EXPECT_EQ(event->last, i == 2);
  }
  timed_out = true;
  EXPECT_FALSE(streams[0]->next(std::chrono::milliseconds(1), &timed_out));
  EXPECT_FALSE(timed_out);  // it has ended, no time-out
  EXPECT_FALSE(streams[0]->next());
  EXPECT_EQ(refusal(*held.engine, api_request(3)), "");  // its slot is free
}

// request_memory(64) is 33792 bytes; 8 MiB are reserved for requests, and 128 answers of 64 tokens take 4325376 of
// them.
TEST(EngineApi, OpenRequestsAreBoundedByMemory) {
  EngineOptions options;
  options.max_streams = 130;
  HeldEngine held(options, int64_t{4} << 30, api_request(-1, 128));
  ASSERT_EQ(request_memory(64), 33792);
  const int64_t limit = std::max<int64_t>(8 << 20, 2 * 130 * 33792), left = limit - 128 * 33792;
  const int64_t fit = left / 33792;
  ASSERT_LT(fit, 128 + 10);
  const auto with = [](int64_t Request::*count, int64_t value, int64_t answer) {
    Request request = api_request(answer);
    request.*count = value;
    return request;
  };
  auto stream = held.engine->submit(api_request(-1, std::min<int64_t>(fit, 120)));
  ASSERT_TRUE(stream.ok());
  const int64_t rest = left - std::min<int64_t>(fit, 120) * 33792;
  const int64_t more = rest / 33792 + 1;
  ASSERT_LE(more, 128);
  EXPECT_NE(refusal(*held.engine, with(&Request::n, more, -1)), "");
  EXPECT_NE(refusal(*held.engine, with(&Request::best_of, more, 61)), "");
  EXPECT_NE(refusal(*held.engine, with(&Request::best_of, more, 1000)), "");
  const int64_t small = rest / request_memory(10);
  ASSERT_LT(small, 128);
  EXPECT_NE(refusal(*held.engine, with(&Request::n, small + 1, 7)), "");
  EXPECT_EQ(refusal(*held.engine, with(&Request::n, small, 7)), "");
  const EngineStats stats = held.engine->stats();
  EXPECT_EQ(stats.memory_budget, int64_t{4} << 30);
  const auto requests = std::ranges::find(stats.memory, "requests", &MemoryUse::name);
  ASSERT_NE(requests, stats.memory.end());
  EXPECT_EQ(requests->bytes, limit);
}

// How many more requests would be accepted.
int64_t free_places(Engine& engine) {
  std::vector<std::shared_ptr<QueuePlace>> taken;
  for (;;) {
    auto place = engine.take_place(1);
    if (!place.ok()) return std::ssize(taken);
    taken.push_back(std::move(*place));
  }
}

// One after the other with the same place; none of them has another.
TEST(EngineApi, APlaceIsARequestsAndThenAnothers) {
  EngineOptions options;
  options.max_streams = 2;
  options.queue = 1;
  HeldEngine held(options);
  auto place = held.engine->take_place(60);
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(free_places(*held.engine), 1);
  auto other = held.engine->submit(api_request(3));
  ASSERT_TRUE(other.ok());
  const auto full = held.engine->take_place(1);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().message, "queue: 3 requests are open already; try again later");
  const auto submit = [&](std::promise<void>& last) {
    return held.engine->submit(
        api_request(3),
        [&last](TokenEvent&& event) {
          if (event.last) last.set_value();
        },
        *place);
  };
  std::promise<void> first, refused, second;
  ASSERT_TRUE(submit(first).ok());
  EXPECT_FALSE(submit(refused).ok());  // the first one has the place
  EXPECT_EQ(refusal(*held.engine, api_request(3)), "queue: 3 requests are open already; try again later");
  held.let_on();
  first.get_future().wait();
  ASSERT_TRUE(submit(second).ok());
  second.get_future().wait();
  while ((*other)->next()) {
  }
  held.ended.get_future().wait();
  EXPECT_EQ(free_places(*held.engine), 2);
  place->reset();
  EXPECT_EQ(free_places(*held.engine), 3);
}

TEST(EngineApi, APlaceHoldsMemoryAndMayOutliveTheEngine) {
  EngineOptions options;
  options.max_streams = 130;
  HeldEngine held(options, int64_t{4} << 30);
  const int64_t limit = std::max<int64_t>(8 << 20, 2 * 130 * request_memory(64));
  std::vector<std::shared_ptr<QueuePlace>> places;
  for (;;) {
    auto place = held.engine->take_place(64);
    if (!place.ok()) break;
    places.push_back(std::move(*place));
  }
  EXPECT_EQ(std::ssize(places), limit / request_memory(64) - 1);
  EXPECT_NE(refusal(*held.engine, api_request(61)).find("the open requests take"), std::string::npos);
  EXPECT_TRUE(held.engine
                  ->submit(
                      api_request(61), [](TokenEvent&&) {}, places.front())
                  .ok());
  Request larger = api_request(61);
  larger.n = 3;
  EXPECT_FALSE(held.engine
                   ->submit(
                       larger, [](TokenEvent&&) {}, places.back())
                   .ok());
  places.resize(places.size() - 4);
  EXPECT_TRUE(held.engine
                  ->submit(
                      larger, [](TokenEvent&&) {}, places.back())
                  .ok());
  held.let_on();
  held.engine.reset();
  places.clear();
}

TEST(EngineApi, ARaisedRequestRunsFirst) {
  EngineOptions options;
  options.max_streams = 1;
  options.policy = "priority";
  HeldEngine held(options);
  std::mutex mutex;
  std::vector<int> order;
  std::promise<void> all;
  std::vector<RequestId> ids;
  for (int i = 0; i < 3; ++i) {
    Request request = api_request(2);
    request.priority = -i;
    auto id = held.engine->submit(request, [&, i](TokenEvent&& event) {
      if (!event.last) return;
      std::lock_guard lock(mutex);
      order.push_back(i);
      if (order.size() == 3) all.set_value();
    });
    ASSERT_TRUE(id.ok());
    ids.push_back(*id);
  }
  held.engine->raise(ids[2], 1);
  held.engine->raise(ids[0], -9);  // not lowered
  held.engine->raise(999, 5);      // unknown
  held.let_on();
  all.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{2, 0, 1}));
}

// An evictor that a request names stores the positions and sums of its streams' tokens: h2o 20 bytes a slot and more.
TEST(EngineApi, ARequestsOwnEvictorCountsAsItsMemory) {
  EngineOptions options;
  options.max_streams = 4;
  options.drafter = "ngram:k=3";
  HeldEngine held(options, int64_t{4} << 30, api_request(-1, 120));
  const int64_t left = 8388608 - 120 * request_memory(64);
  Request request = api_request(-1);
  const int64_t plain = left / request_memory(64);
  ASSERT_GT(plain, 1);
  request.n = plain;
  request.evictor = "h2o:budget=24,scope=stream";
  const auto rule = make_eviction_rule(request.evictor).value();
  const int64_t own = eviction_bytes(*rule, kv_demand(rule.get(), static_cast<int64_t>(request.prompt.size()), 64), 3);
  EXPECT_GT(own, 24 * 12);
  EXPECT_EQ(request_evictor_memory(request, rule.get(), 64, 3), own);
  ASSERT_GT(plain * (request_memory(64) + own), left);
  EXPECT_EQ(refusal(*held.engine, request), "queue: the open requests take " + format_bytes(8388608 - left) +
                                                " of the " + format_bytes(8388608) +
                                                " that the memory budget has for them; try again later");
  request.n = left / (request_memory(64) + own);
  EXPECT_EQ(refusal(*held.engine, request), "");
}

TEST(EngineApi, EndedRequestsReleaseMemory) {
  EngineOptions options;
  options.max_streams = 4;  // 8 MiB for requests: 248 answers of 64 tokens
  HeldEngine held(options, int64_t{4} << 30, api_request(-1, 128));
  const std::string refused = refusal(*held.engine, api_request(-1, 121));
  EXPECT_EQ(refused, "queue: the open requests take " + format_bytes(4325376) + " of the " + format_bytes(8388608) +
                         " that the memory budget has for them; try again later");
  EXPECT_EQ(refusal(*held.engine, api_request(-1, 120)), "");
  held.engine->cancel(held.first_id);
  held.let_on();
  EXPECT_EQ(held.ended.get_future().get().finish, FinishReason::cancelled);
  EXPECT_EQ(refusal(*held.engine, api_request(1, 128)), "");
}

TEST(EngineApi, CancelEndsARequestAndDroppedStreamsCancel) {
  EngineOptions options;
  options.max_streams = 4;
  HeldEngine held(options);
  auto stream = held.engine->submit(api_request(60));
  ASSERT_TRUE(stream.ok());
  (*stream)->cancel();
  held.engine->cancel(held.first_id);
  held.let_on();
  EXPECT_EQ(held.ended.get_future().get().finish, FinishReason::cancelled);
  const auto event = (*stream)->next(kPatience, nullptr);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->finish, FinishReason::cancelled);
  EXPECT_TRUE(event->last);
}

TEST(EngineApi, EverySnapshotRequestIsAnswered) {
  HeldEngine held({});
  std::atomic<int> answered = 0;
  std::promise<void> all;
  const auto sink = [&](EngineSnapshot&& look) {
    EXPECT_FALSE(look.stopped);
    EXPECT_EQ(look.streams.size(), 1u);
    if (++answered == static_cast<int>(Engine::kMaxSnapshots)) all.set_value();
  };
  for (size_t i = 0; i < Engine::kMaxSnapshots; ++i) EXPECT_TRUE(held.engine->snapshot(sink));
  EXPECT_FALSE(held.engine->snapshot(sink));  // the limit of pending snapshots is reached
  EXPECT_FALSE(held.engine->liveness().stopped);
  EXPECT_EQ(held.engine->liveness().step_seconds, 0);  // the sink is called between steps
  held.let_on();
  EXPECT_EQ(all.get_future().wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(answered, static_cast<int>(Engine::kMaxSnapshots));
}

// Requests that are open when the engine is destroyed get a last event, admitted or not; streams outlive the engine.
TEST(EngineApi, DestructionEndsEveryStream) {
  for (int round = 0; round < 5; ++round) {
    EngineOptions options;
    options.max_streams = 4;
    auto held = std::make_unique<HeldEngine>(options);
    auto one = held->engine->submit(api_request(60)), two = held->engine->submit(api_request(60, 2));
    ASSERT_TRUE(one.ok() && two.ok());
    std::promise<bool> looked;
    EXPECT_TRUE(held->engine->snapshot([&](EngineSnapshot&& look) { looked.set_value(look.stopped); }));
    auto ended = held->ended.get_future();
    held.reset();
    EXPECT_TRUE(ended.valid());
    EXPECT_EQ(looked.get_future().wait_for(std::chrono::seconds(0)), std::future_status::ready);
    for (auto* stream : {&one, &two}) {
      bool late = false;
      std::optional<TokenEvent> event;
      while ((event = (**stream)->next(kPatience, &late)) && !event->last) {
      }
      ASSERT_TRUE(event) << late;
      EXPECT_TRUE(event->finish == FinishReason::cancelled || event->finish == FinishReason::length);
      (**stream)->cancel();  // nothing to cancel
    }
  }
}

TEST(EngineApi, ValidatesBeforeReservingMemory) {
  const auto model = golden();
  EngineOptions options;
  options.threads = 1;
  options.batch_tokens = int64_t{1} << 50;
  auto made = Engine::create(model, options);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().kind, ErrorKind::user);
  EXPECT_EQ(made.error().message, "batch tokens: must be between 1 and 65536, got 1125899906842624");
  options = {.threads = 1, .policy = "none"};
  EXPECT_FALSE(Engine::create(model, options).ok());
  auto engine = Engine::create(model, {.threads = 1});
  ASSERT_TRUE(engine.ok());
  EXPECT_EQ((*engine)->context(), 64);
  EXPECT_EQ((*engine)->stats().kv_blocks, 32);  // eight streams of 64 tokens, blocks of 16
  EXPECT_EQ((*engine)->stats().memory_budget, 0);
  Request empty;
  EXPECT_FALSE((*engine)->check(empty).ok());
  const auto refused = (*engine)->submit(empty);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "prompt: must hold at least one token");
  EXPECT_TRUE((*engine)->compiled(Constraint{}).has_value());
  EXPECT_FALSE((*engine)->compiled(Constraint{.kind = Constraint::Kind::regex, .text = "a"}).has_value());
  ASSERT_TRUE((*engine)->compile(Constraint{.kind = Constraint::Kind::regex, .text = "a"}).ok());
  EXPECT_FALSE((*engine)->unload_adapter("none"));
  EXPECT_TRUE((*engine)->adapters().empty());
}

}  // namespace
}  // namespace millrace
