// Streams whose prompts are partly loaded from disk: in too little memory, over a store that is killed, damaged and
// reopened, with cancellations and preemptions while blocks are being loaded, a stream's results have the same bits as
// alone, and every block is accounted for after every step.
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "properties/store_runs.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

// Parameter: seconds that a load takes. If far less than a chunk, streams run at once and wait for each layer. If more
// than the chunk after a prompt's last full block, and less than computing two blocks, they wait for the whole load.
class EngineStore : public ::testing::TestWithParam<std::tuple<double, const char*>>, public StoreRuns {
 protected:
  EngineStore() : StoreRuns(static_cast<uint64_t>(load_seconds()) + 5) {}
  void SetUp() override {
    model_ = load_for(golden_model("smollm3"), *select_isa());
    ASSERT_TRUE(model_);
    std::string pattern = ::testing::TempDir() + "engine_store_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static double load_seconds() { return std::get<0>(GetParam()); }
  std::string path() const { return folder_ + "/store"; }

  EngineOptions tight() {
    EngineOptions o = tight_options();
    o.kv_store = store();
    return o;
  }
  bool by_arrival() const { return std::get<1>(GetParam()) == std::string("arrival"); }
  std::string store(double fetch = 1) { return SsdStoreFlags{path(), 2 << 20, std::get<1>(GetParam()), fetch}.text(); }

  std::unique_ptr<EngineCore> open(const EngineOptions& o) { return StoreRuns::open(o, load_seconds()); }
  // With `crash`, the file is copied at a random moment, as a crash would leave it.
  void run(EngineCore& core, bool crash) {
    const int64_t copied_at = draw(60);
    StoreRuns::run(core, [&](int64_t step) {
      if (crash && step == copied_at)
        std::filesystem::copy_file(path(), folder_ + "/crashed", std::filesystem::copy_options::overwrite_existing);
    });
  }

  std::string folder_;
};

TEST_P(EngineStore, StreamsHaveTheSameBitsAsAlone) {
  for (int round = 0; round < 8; ++round) {
    const bool crash = round % 2 == 1;
    auto core = open(tight());
    ASSERT_TRUE(core);
    run(*core, crash);
    if (HasFatalFailure()) return;
    core.reset();
    if (crash && std::filesystem::exists(folder_ + "/crashed")) std::filesystem::rename(folder_ + "/crashed", path());
    if (round % 4 == 2) damage(path());
  }
  EXPECT_GT(hits_, 500);
  EXPECT_GT(failed_, 0);
  EXPECT_GT(corrupt_, 0);
}

TEST_P(EngineStore, TheNextEngineReusesStoredBlocks) {
  const Request request = make_request(1, 90, 5, model_->info().vocab);
  for (const int64_t expected : {0, 88, 88}) {
    auto core = open(tight());
    ASSERT_TRUE(core->add(1, request).ok());
    StoreAnswer answer;
    std::vector<TokenEvent> events;
    while (!core->idle()) core->step(events);
    for (const auto& event : events) take(answer, event);
    EXPECT_EQ(events.back().timings.cached_tokens, expected);
    EXPECT_EQ(core->stats().store.hit_tokens, expected);
    EXPECT_EQ(core->stats().prompt_tokens, 90 - expected);
    EXPECT_EQ(answer.tokens, alone(request).tokens);
    EXPECT_EQ(answer.logprobs, alone(request).logprobs);
  }
  EngineOptions o = tight();
  o.kv_format = "q8_0";  // another layout: the file is created anew
  if (auto core = CpuExecutor::create(model_, o); core.ok()) {
    EXPECT_EQ(open(o)->stats().store.blocks, 0);
  }
  o.prefix_cache = false;
  EXPECT_FALSE(EngineCore::create(model_, o).ok());
}

TEST_P(EngineStore, BlocksFasterToComputeAreComputed) {
  const Request request = make_request(1, 16, 5, model_->info().vocab);
  int64_t hits = -1;
  for (int i = 0; i < 2; ++i) {
    auto core = open(tight());
    ASSERT_TRUE(core->add(1, request).ok());
    std::vector<TokenEvent> events;
    while (!core->idle()) core->step(events);
    hits = core->stats().store.hit_tokens;
    if (i == 1) {
      EXPECT_EQ(core->stats().store.passed_tokens, load_seconds() > 8 ? 8 : 0);
    }
  }
  EXPECT_EQ(hits, load_seconds() > 8 ? 0 : 8);
}

// Half of the stored blocks are fetched: a stream with left-out tokens reports them, and none of its blocks are shared
// with another stream.
TEST_P(EngineStore, LeftOutTokensAreReportedAndStayInTheirStream) {
  EngineOptions o = tight();
  o.kv_store = store(0.5);
  if (by_arrival()) {
    EXPECT_FALSE(EngineCore::create(model_, o).ok());  // arrival order has no importance
    return;
  }
  o.kv_tier = memory_tier(150);
  for (int round = 0; round < 6; ++round) {
    auto core = open(o);
    ASSERT_TRUE(core);
    run(*core, false);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(hits_, 100);
  EXPECT_GT(left_out_, 100);
  EXPECT_GT(went_without_, 3);
}

TEST_P(EngineStore, AStreamWithLeftOutTokensDoesNotDependOnTheSchedule) {
  EngineOptions o = tight();
  if (by_arrival()) return;
  Request request = make_request(1, 90, 12, model_->info().vocab);
  {
    auto core = open(o);
    ASSERT_TRUE(core->add(1, request).ok());
    std::vector<TokenEvent> events;
    while (!core->idle()) core->step(events);
  }
  const Request own = make_request(200, 20, 1, model_->info().vocab);
  request.prompt.insert(request.prompt.end(), own.prompt.begin(), own.prompt.end());
  o.kv_store = store(0.4);  // 5 of 11 blocks
  std::filesystem::copy_file(path(), folder_ + "/stored");
  StoreAnswer first;
  for (const int64_t batch : {48, 8, 11}) {
    std::filesystem::copy_file(folder_ + "/stored", path(), std::filesystem::copy_options::overwrite_existing);
    o.batch_tokens = batch;
    o.max_streams = 1;
    o.resident_streams = 3;
    o.kv_tier = memory_tier(batch == 11 ? 150 : 0);
    auto core = open(o);
    ASSERT_TRUE(core->add(1, request).ok());
    std::vector<TokenEvent> events;
    for (int64_t step = 0; !core->idle(); ++step) {
      core->step(events);
      if (batch == 11 && core->stats().generated_tokens == 4 && core->stats().preemptions == 0) {
        StepPlan plan;  // preempted to the tier, and swapped in again
        plan.preempted.push_back({1, true});
        ASSERT_TRUE(core->replay(plan, events).ok());
      }
      ASSERT_TRUE(core->check_blocks().ok());
    }
    EXPECT_EQ(events.back().timings.left_out_tokens, 6 * 8) << batch;
    EXPECT_EQ(events.back().timings.cached_tokens, 5 * 8);
    EXPECT_EQ(core->stats().prompt_tokens, 22);
    EXPECT_EQ(core->stats().swapped_in_tokens > 0, batch == 11);
    EXPECT_EQ(core->stats().store.left_out_tokens, 6 * 8);
    EXPECT_EQ(core->stats().kv_blocks_cached, 0);  // no block of that prompt may be shared
    StoreAnswer answer;
    for (const auto& event : events) take(answer, event);
    EXPECT_EQ(answer.tokens.size(), 12u);
    EXPECT_NE(answer.logprobs, alone(request).logprobs);
    if (batch != 48) {
      EXPECT_EQ(answer.tokens, first.tokens) << batch;
      EXPECT_EQ(answer.logprobs, first.logprobs) << batch;
    } else {
      first = answer;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Loads, EngineStore,
                         ::testing::Combine(::testing::Values(0.001, 9.0), ::testing::Values("arrival", "importance")),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param) < 1 ? "JoinEarly" : "AreAwaited") +
                                  (std::get<1>(test.param) == std::string("arrival") ? "" : "ByImportance");
                         });

}  // namespace
}  // namespace millrace
