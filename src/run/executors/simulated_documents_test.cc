// Documents of contexts on a simulated machine, with exact times.
#include <gtest/gtest.h>

#include "run/compatibility/rules.h"
#include "run/executors/simulated_executor.h"
#include "run/executors/stepped_stream_test.h"

namespace millrace {
namespace {

// Documents see less than all before them, and what is computed again takes its time.
TEST(SimulatedDocuments, SeeWhatTheirContextLetsThem) {
  class LinearCost final : public CostModel {
   public:
    double step_seconds(const StepShape& s) const override {
      return static_cast<double>(s.keys) + 1e4 * static_cast<double>(s.tokens);
    }
    double swap_seconds(int64_t) const override { return 0; }
  };
  EngineOptions o;
  o.context = 1024;
  o.block_tokens = 16;
  o.batch_tokens = 40;
  o.max_streams = 8;
  ManualClock clock;
  auto made = SimulatedExecutor::create(std::make_unique<LinearCost>(), clock, o, {.layers = 4});
  ASSERT_TRUE(made.ok());
  SimulatedExecutor& executor = **made;
  Facts facts = executor.facts();
  facts.add(facts::kDocumentsApart, "context independent");
  EXPECT_TRUE(resolve(facts).ok());
  testing::SteppedStream stream;
  stream.sequence.tokens.resize(601);
  stream.context.parts = {{.begin = 100, .end = 600, .moved = 99, .sees = {{0, 1}, {100, 600}}}};
  const auto seconds = [&](const auto& run) {
    const int64_t before = clock.now_ns();
    run();
    return (clock.now_ns() - before) / 1'000'000'000;
  };
  const auto step = [&](int64_t first) {
    return seconds([&] { testing::run_chunks(executor, {{&stream, {1, first, 1, false}}}); }) - 10'000;
  };
  EXPECT_EQ(step(50), 51);
  EXPECT_EQ(step(300), 1 + 200 + 1);
  EXPECT_EQ(step(600), 601);
  const size_t stale[] = {0};
  stream.context.parts[0].fresh_first = 16;
  EXPECT_EQ(seconds([&] { executor.documents()->refresh(stream.ref(), stream.context, stale); }), 116 + 160'000);
  stream.context.parts[0].fresh_first = 0;
  stream.context.parts[0].fresh_share = 0.15;  // 75 tokens, after all of them in one of four layers
  EXPECT_EQ(seconds([&] { executor.documents()->refresh(stream.ref(), stream.context, stale); }),
            600 + 10'000 * (500 + 3 * 75) / 4);
  EXPECT_EQ(executor.documents()->check_encoded({}).error().kind, ErrorKind::unsupported);
}

}  // namespace
}  // namespace millrace
