// The limits of engine options and requests: each is tested at its last valid and its first invalid value, on both
// sides, and the error names the option.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "engine/engine_core.h"
#include "kv/pool.h"
#include "run/executors/simulated_executor.h"
#include "schedule/cost_model.h"

namespace millrace {
namespace {

EngineOptions good_options() {
  EngineOptions o;
  o.context = 100;
  o.kv_tokens = 400;
  o.block_tokens = 4;
  return o;
}

// The executor is created from valid options, so that limits beyond the available memory can be tested.
Result<std::unique_ptr<EngineCore>> make(const EngineOptions& options, ManualClock& clock) {
  auto cost = load_cost_model("llama-7b-a100");
  auto executor = SimulatedExecutor::create(std::move(*cost), clock, good_options());
  return EngineCore::create(std::move(*executor), options, &clock);
}

struct Limit {
  const char* name;
  int64_t EngineOptions::*option;
  int64_t least, most;
};

TEST(EngineOptionLimits, AcceptedAndRejectedAtTheEdge) {
  const Limit limits[] = {{"context", &EngineOptions::context, 0, INT32_MAX},
                          {"max streams", &EngineOptions::max_streams, 1, 65536},
                          {"resident streams", &EngineOptions::resident_streams, 0, 1 << 20},
                          {"queue", &EngineOptions::queue, 0, 1 << 24},
                          {"KV tokens", &EngineOptions::kv_tokens, 0, int64_t{1} << 40},
                          {"KV block size", &EngineOptions::block_tokens, 1, kMaxBlockTokens},
                          {"batch tokens", &EngineOptions::batch_tokens, 1, 65536}};
  for (const Limit& limit : limits) {
    for (int64_t value : {limit.least, limit.most}) {
      EngineOptions options = good_options();
      options.*limit.option = value;
      ManualClock clock;
      EXPECT_TRUE(make(options, clock).ok()) << limit.name << " " << value;
    }
    for (int64_t value :
         {limit.least - 1, limit.most + 1, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
      EngineOptions options = good_options();
      options.*limit.option = value;
      ManualClock clock;
      const auto made = make(options, clock);
      ASSERT_FALSE(made.ok()) << limit.name << " " << value;
      EXPECT_EQ(made.error().kind, ErrorKind::user);
      EXPECT_EQ(made.error().message.find(limit.name), 0u) << made.error().message;
      EXPECT_NE(made.error().message.find(std::to_string(value)), std::string::npos) << made.error().message;
    }
  }
  for (int threads : {-1, 1025}) {
    EngineOptions options = good_options();
    options.threads = threads;
    ManualClock clock;
    const auto made = make(options, clock);
    ASSERT_FALSE(made.ok()) << threads;
    EXPECT_EQ(made.error().message.find("threads"), 0u);
  }
  for (int threads : {0, 1024}) {
    EngineOptions options = good_options();
    options.threads = threads;
    ManualClock clock;
    EXPECT_TRUE(make(options, clock).ok());
  }
}

TEST(EngineOptionLimits, StoreOptions) {
  const auto refused = [](const std::string& store, bool prefix_cache = true) {
    EngineOptions options = good_options();
    options.kv_store = store;
    options.prefix_cache = prefix_cache;
    ManualClock clock;
    const auto made = make(options, clock);
    return made.ok() ? std::string() : made.error().message;
  };
  EXPECT_EQ(refused("ssd:path=store,size=1M"), "");
  EXPECT_EQ(refused("ssd:path=store,fetch=0.5").find("KV store: to fetch a part"), 0u);
  EXPECT_EQ(refused("ssd:path=store,order=importance,fetch=0.5"), "");
  EXPECT_EQ(refused("ssd:path=store", false).find("KV store: holds blocks of the prefix cache"), 0u);
  EngineOptions part = good_options();
  part.kv_store = "ssd:path=store,order=importance,fetch=0.5";
  ManualClock clock;
  const auto simulated = SimulatedExecutor::create(std::move(*load_cost_model("llama-7b-a100")), clock, part);
  ASSERT_FALSE(simulated.ok());
  EXPECT_EQ(simulated.error().message.find("KV store ssd that fetches a part does not go with a simulation"), 0u);
}

TEST(EngineOptionLimits, UnknownNames) {
  const std::pair<const char*, std::function<void(EngineOptions&)>> wrong[] = {
      {"unknown", [](EngineOptions& o) { o.policy = "unknown"; }},
      {"prefix evictor: unknown 'none'", [](EngineOptions& o) { o.prefix_evict = "none"; }},
      {"plans: /nowhere/plans", [](EngineOptions& o) { o.record_plans = "/nowhere/plans"; }}};
  for (const auto& [words, spoil] : wrong) {
    EngineOptions options = good_options();
    spoil(options);
    ManualClock clock;
    const auto made = make(options, clock);
    ASSERT_FALSE(made.ok()) << words;
    EXPECT_NE(made.error().message.find(words), std::string::npos) << made.error().message;
  }
}

class RequestLimits : public ::testing::Test {
 protected:
  RequestLimits() {
    auto made = make(good_options(), clock_);
    EXPECT_TRUE(made.ok());
    core_ = std::move(*made);
  }
  static Request good() {
    Request request;
    request.prompt.assign(10, 1);
    request.max_tokens = 5;
    return request;
  }
  // The error message; "" if the request is accepted.
  std::string refused(const std::function<void(Request&)>& change) {
    Request request = good();
    change(request);
    const auto checked = core_->check(request);
    return checked.ok() ? "" : checked.error().message;
  }

  ManualClock clock_;
  std::unique_ptr<EngineCore> core_;
};

TEST_F(RequestLimits, PromptAndAnswerLength) {
  EXPECT_EQ(refused([](Request&) {}), "");
  EXPECT_EQ(refused([](Request& r) { r.prompt.clear(); }).find("prompt: must hold"), 0u);
  EXPECT_EQ(refused([](Request& r) { r.prompt.assign(99, 1); }), "");
  EXPECT_EQ(refused([](Request& r) { r.prompt.assign(100, 1); }).find("prompt: 100 tokens do not leave room"), 0u);
  EXPECT_EQ(refused([](Request& r) { r.max_tokens = -1; }), "");
  EXPECT_EQ(refused([](Request& r) { r.max_tokens = 0; }), "");
  EXPECT_EQ(refused([](Request& r) { r.max_tokens = -2; }).find("max_tokens"), 0u);
  EXPECT_EQ(refused([](Request& r) { r.min_tokens = -1; }).find("min_tokens"), 0u);
  for (const auto& [name, member] : {std::pair{"deadline", &Request::deadline_seconds},
                                     {"time limit", &Request::time_limit_seconds},
                                     {"keep", &Request::keep_seconds}}) {
    const auto field = member;
    for (double value : {0.0, 1e9}) EXPECT_EQ(refused([&](Request& r) { r.*field = value; }), "") << name;
    for (double value : {-0.001, 1.1e9, std::numeric_limits<double>::quiet_NaN()})
      EXPECT_EQ(refused([&](Request& r) { r.*field = value; }).find(name), 0u) << value;
  }
}

TEST_F(RequestLimits, NumberOfAnswers) {
  for (int64_t n : {1, 128}) EXPECT_EQ(refused([&](Request& r) { r.n = n; }), "") << n;
  for (int64_t n : {-1, 0, 129})
    EXPECT_EQ(refused([&](Request& r) { r.n = n; }).find("n: must be between 1 and 128"), 0u) << n;
  for (int64_t best : {0, 3, 128}) EXPECT_EQ(refused([&](Request& r) { r.n = 3, r.best_of = best; }), "") << best;
  for (int64_t best : {-1, 1, 2, 129})
    EXPECT_EQ(refused([&](Request& r) { r.n = 3, r.best_of = best; }).find("best_of: must be between 3"), 0u) << best;
  for (int64_t beams : {0, 129})
    EXPECT_EQ(refused([&](Request& r) { r.beams = beams; }).find("beams: must be between 1 and 128"), 0u) << beams;
  EXPECT_EQ(refused([](Request& r) { r.beams = 4, r.n = 2, r.best_of = 3; }).find("best_of: does not go with beams"),
            0u);
  EXPECT_EQ(refused([](Request& r) { r.beams = 2, r.n = 3; }).find("n: 3 answers of 2 beams"), 0u);
  for (double penalty : {-100.5, 100.5, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_EQ(refused([&](Request& r) { r.beams = 2, r.length_penalty = penalty; }).find("length penalty"), 0u)
        << penalty;
  for (double penalty : {-100.0, 100.0}) {  // the next error comes from the simulation
    EXPECT_EQ(refused([&](Request& r) {
                r.beams = 2, r.n = 2, r.best_of = 2, r.length_penalty = penalty;
              }).find("beam search does not go with a simulation"),
              0u);
    EXPECT_EQ(refused([&](Request& r) { r.length_penalty = 10 * penalty; }), "") << "ignored without beams";
  }
}

}  // namespace
}  // namespace millrace
