// The answers of a request were queued one at a time: when the third was refused, the first two were already in the
// queue, ran for a client that had received an error, and their events referred to a request that had ended. No test
// had an answer refused after the first.
#include <gtest/gtest.h>

#include "engine/engine_core.h"
#include "run/executors/simulated_executor.h"

namespace millrace {
namespace {

// Has room for this many streams.
class SmallChooser final : public TokenChooser {
 public:
  SmallChooser(TokenChooser& inner, int64_t streams) : inner_(inner), streams_left_(streams) {}
  Result<void> begin(StreamRef stream) const override {
    if (streams_left_-- == 0) return Error::resource("adapters: no room for another stream");
    return inner_.begin(stream);
  }
  Result<bool> choose(StreamRef stream, int64_t row, TokenEvent& event) override {
    return inner_.choose(stream, row, event);
  }
  void flush(StreamRef stream, TokenEvent& event) override { inner_.flush(stream, event); }

 private:
  TokenChooser& inner_;
  mutable int64_t streams_left_;
};

// A simulated machine with room for this many streams.
class SmallExecutor final : public Executor {
 public:
  SmallExecutor(std::unique_ptr<Executor> inner, int64_t streams)
      : inner_(std::move(inner)), chooser_(inner_->chooser(), streams) {
    set_parts({.home = &inner_->home(), .chooser = &chooser_, .cost = inner_->cost()});
  }
  const ExecutorLimits& limits() const override { return inner_->limits(); }
  Result<void> check(const Request& request) const override { return inner_->check(request); }
  void forward(const StepInput& input, StepOutput& output) override { inner_->forward(input, output); }

 private:
  std::unique_ptr<Executor> inner_;
  SmallChooser chooser_;
};

TEST(AnswersAddedAtOnce, ARefusedThirdAnswerLeavesNothingBehind) {
  for (const char* policy : {"fcfs", "vtc", "skip_join_mlfq"}) {
    EngineOptions o;
    o.context = 256;
    o.policy = policy;
    ManualClock clock;
    auto cost = load_cost_model("opt-13b-a100");
    ASSERT_TRUE(cost.ok());
    auto inner = SimulatedExecutor::create(std::move(*cost), clock, o);
    ASSERT_TRUE(inner.ok());
    auto made = EngineCore::create(std::make_unique<SmallExecutor>(std::move(*inner), 2), o, &clock);
    ASSERT_TRUE(made.ok());
    EngineCore& core = **made;
    Request request;
    request.prompt.assign(40, 7);
    request.max_tokens = 4;
    request.n = 4;
    EXPECT_FALSE(core.add(1, request).ok());
    EXPECT_TRUE(core.idle());
    EXPECT_EQ(core.stats().waiting, 0);
    std::vector<TokenEvent> events;
    for (int i = 0; i < 20; ++i) core.step(events);
    EXPECT_TRUE(events.empty());

    request.n = 2;  // the refused request left the engine unchanged
    ASSERT_TRUE(core.add(2, request).ok());
    for (int i = 0; i < 100 && !core.idle(); ++i) core.step(events);
    EXPECT_TRUE(core.idle());
    int64_t last = 0;
    for (const TokenEvent& event : events) {
      EXPECT_EQ(event.request, 2u);
      last += event.last;
    }
    EXPECT_EQ(last, 1);
    EXPECT_TRUE(core.check_blocks().ok());
  }
}

}  // namespace
}  // namespace millrace
