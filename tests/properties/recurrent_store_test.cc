// Models with recurrent states over a prefix store: a prompt that continues from stored blocks and a stored state has
// the bits of the same prompt alone, after a restart, beside other streams, over a damaged file, and for answers, beams
// and drafts. Every block and slot is accounted for after every step.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "kv/tiers/fake_redis_test.h"
#include "kv/tiers/store_format.h"
#include "properties/redis_process.h"
#include "properties/store_runs.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

// Parameter: model, and order of the file; "redis": a server in place of the file.
class RecurrentStore : public ::testing::TestWithParam<std::tuple<const char*, const char*>>, public StoreRuns {
 protected:
  RecurrentStore() : StoreRuns(77) {}
  void SetUp() override {
    model_ = load_for(golden_model(std::get<0>(GetParam())), *select_isa());
    ASSERT_TRUE(model_);
    vocab_ = model_->info().vocab;
    std::string pattern = ::testing::TempDir() + "recurrent_store_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  static bool on_server() { return std::get<1>(GetParam()) == std::string("redis"); }
  std::string path() const { return folder_ + "/store"; }

  void store_in(EngineOptions& o) {
    o.state_stride = 16;
    if (on_server()) {
      o.kv_store = fmt::format("redis:port={},deadline_ms=20000", server_.port());
      return;
    }
    o.kv_store = SsdStoreFlags{path(), 4 << 20, std::get<1>(GetParam())}.text();
  }
  EngineOptions storing(int threads = 1, int64_t batch_tokens = 512) {
    EngineOptions o = options(threads, batch_tokens, 8);
    store_in(o);
    return o;
  }
  // Loads take no time: every stored token is loaded.
  std::unique_ptr<EngineCore> open(const EngineOptions& o) { return StoreRuns::open(o, 0.001); }
  // Requests with the same first `common` tokens.
  Request branch(int64_t seed, int64_t common, int64_t prompt = 70) const {
    Request request = make_request(seed, prompt, 12, vocab_);
    const Request first = make_request(1, prompt, 12, vocab_);
    std::copy_n(first.prompt.begin(), std::min(common, prompt), request.prompt.begin());
    return request;
  }
  Shown shown_alone(const Request& request) const {
    EngineOptions o = options();
    o.prefix_cache = false;
    auto core = make_core(model_, o);
    EXPECT_TRUE(core->add(1, request).ok());
    return run_all(*core, vocab_)[1];
  }
  // Runs the request, and expects its bits and that many tokens of the store.
  void expect(EngineCore& core, const Request& request, int64_t loaded) {
    const int64_t before = core.stats().store.hit_tokens;
    ASSERT_TRUE(core.add(++id_, request).ok());
    const Shown shown = run_all(core, vocab_)[id_];
    EXPECT_TRUE(shown.same_bits(shown_alone(request)));
    EXPECT_EQ(core.stats().store.hit_tokens - before, loaded);
    EXPECT_EQ(core.stats().states_free, core.stats().states);
    if (loaded > 0) {
      EXPECT_EQ(shown.cached, loaded);
    }
  }
  // Bytes of an image in the store, and how many of them a state has.
  static std::pair<int64_t, int64_t> sizes(EngineCore& core) {
    const ImageShape shape = ImageShape::of(core.kv().layout());
    if (on_server()) return {shape.image_bytes(), shape.state_pieces()};
    return {StoreGeometry::create(core.kv().layout(), int64_t{1} << 30)->slot_bytes, shape.state_pieces()};
  }
  // Waits until the store has written that many images. A lookup collects what has been written.
  void wait_for_writes(EngineCore& core, int64_t images) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (core.stats().store.written_bytes < images * sizes(core).first) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      ASSERT_TRUE(core.add(++id_, make_request(5, 12, 1, vocab_)).ok());
      run_all(core, vocab_);
    }
  }

  FakeRedis server_;
  std::string folder_;
  int64_t vocab_ = 0;
  RequestId id_ = 0;
};

TEST_P(RecurrentStore, TheNextEngineContinuesFromAStoredState) {
  const Request first = branch(1, 0), other = branch(2, 66), left = branch(3, 45);
  expect(*open(storing()), first, 0);
  for (const auto& [threads, chunk] : {std::pair{1, 512}, {2, 512}, {3, 11}, {2, 8}}) {
    const EngineOptions o = storing(threads, chunk);
    auto core = open(o);
    expect(*core, first, 64);
    expect(*core, first, 0);  // the state is in memory again
    expect(*core, other, 0);
    EXPECT_EQ(core->stats().state_cache.hits, 2);
  }
  expect(*open(storing()), other, 64);
  expect(*open(storing()), left, 0);  // blocks, but no state
  Request tenant = first;
  tenant.tenant = "other";
  expect(*open(storing()), tenant, 0);
}

TEST_P(RecurrentStore, ABranchContinuesFromTheLastStateBeforeIt) {
  EngineOptions o = storing(2);
  o.state_evict = "every:k=1";
  expect(*open(o), branch(1, 0), 0);
  auto core = open(o);
  expect(*core, branch(2, 45), 32);
  expect(*core, branch(3, 20), 16);  // blocks in memory, and their state in the store
  EXPECT_EQ(core->stats().state_cache.hits, 0);
}

// The cache has one slot: another prompt's state displaces the first one, whose blocks stay in memory.
TEST_P(RecurrentStore, ADisplacedStateReturnsWithoutItsBlocks) {
  EngineOptions o = storing();
  o.max_streams = 2;
  o.state_cache_bytes = make_core(model_, options())->stats().state_cache.slot_bytes;
  auto core = open(o);
  const Request first = branch(1, 0, 66), other = branch(2, 0, 66);
  Request one = first, two = other;
  one.max_tokens = two.max_tokens = 1;  // no copy of the answer
  expect(*core, one, 0);
  expect(*core, two, 0);
  const auto [bytes, pieces] = sizes(*core);
  // A server receives both prompts and their states as they are computed, and the block of wait_for_writes().
  wait_for_writes(*core, on_server() ? 2 * (8 + pieces) + 1 : pieces);
  expect(*core, one, 64);
  if (!on_server()) wait_for_writes(*core, 2 * pieces);
  expect(*core, two, 64);
  EXPECT_EQ(core->stats().store.read_bytes, 2 * bytes * pieces) << "of the states alone";
}

TEST_P(RecurrentStore, ConversationsContinueFromAnswers) {
  Request turn = make_request(1, 30, 40, vocab_);
  expect(*open(storing()), turn, 0);
  const Shown answer = shown_alone(turn);
  turn.prompt.insert(turn.prompt.end(), answer.tokens.begin(), answer.tokens.end());
  turn.prompt.push_back(3);
  turn.max_tokens = 5;
  expect(*open(storing(2)), turn, 64);
}

// Several answers and beam searches give the same tokens wherever their prompts are read from.
TEST_P(RecurrentStore, AnswersAndBeams) {
  Request answers = branch(1, 0), beams = branch(2, 66);
  answers.n = 3;
  beams.beams = 3;
  beams.sampling.temperature = 0;
  const auto run = [&](EngineCore& core) {
    std::map<std::pair<RequestId, int64_t>, std::vector<TokenId>> out;
    EXPECT_TRUE(core.add(1, answers).ok());
    EXPECT_TRUE(core.add(2, beams).ok());
    std::vector<TokenEvent> events;
    while (!core.idle()) {
      events.clear();
      core.step(events);
      for (const auto& event : events) {
        EXPECT_NE(event.finish, FinishReason::error) << event.error.message;
        if (event.token >= 0) out[{event.request, event.answer}].push_back(event.token);
      }
      EXPECT_TRUE(core.check_blocks().ok());
    }
    EXPECT_EQ(core.stats().states_free, core.stats().states);
    return out;
  };
  EngineOptions plain = options();
  plain.prefix_cache = false;
  const auto expected = run(*make_core(model_, plain));
  EXPECT_EQ(run(*open(storing(2))), expected);
  auto core = open(storing(2, 24));
  EXPECT_EQ(run(*core), expected);
  EXPECT_GE(core->stats().store.hit_tokens, 64);
}

TEST_P(RecurrentStore, DraftsContinueFromAStoredState) {
  Request repeats = make_request(2, 70, 30, vocab_);
  repeats.prompt.assign(70, 2);
  for (const int64_t loaded : {0, 64}) {
    EngineOptions o = storing(2);
    o.drafter = "ngram:min=1,k=5";
    auto core = open(o);
    ASSERT_TRUE(core->add(1, repeats).ok());
    EXPECT_EQ(run_all(*core, vocab_)[1].tokens, shown_alone(repeats).tokens);
    EXPECT_GT(core->stats().drafted_tokens, 0);
    EXPECT_EQ(core->stats().store.hit_tokens, loaded);
  }
}

// Too little memory: blocks and states leave for the store and return, streams are preempted, swapped and cancelled
// while they load, and the file is damaged, or copied at a random moment as a crash would leave it.
TEST_P(RecurrentStore, StreamsHaveTheSameBitsAsAlone) {
  std::atomic<int64_t> loads = 0;
  for (int round = 0; round < 10; ++round) {
    EngineOptions o = tight_options();
    store_in(o);
    o.threads = 1 + round % 2;
    o.state_evict = round % 3 == 0 ? "every:k=2" : "last";
    o.kv_tier = memory_tier(round % 4 == 3 ? 150 : 0);
    o.state_cache_bytes = round % 3 == 1 ? 2 * make_core(model_, options())->stats().state_cache.slot_bytes : 0;
    const bool fails = round % 2 == 1, crash = round % 4 == 2;
    if (on_server() && fails)
      server_.answer([&](const FakeRedis::Command& command, const std::string& reply) {
        std::string sent = reply;
        if (command[0] == "GETRANGE" && ++loads % 40 == 0) sent[sent.size() / 2] ^= 4;
        return FakeRedis::Answer{sent};
      });
    else
      server_.answer({});
    auto core = open(o);
    ASSERT_TRUE(core);
    const int64_t copied_at = draw(60);
    run(*core, [&](int64_t step) {
      if (crash && !on_server() && step == copied_at)
        std::filesystem::copy_file(path(), folder_ + "/crashed", std::filesystem::copy_options::overwrite_existing);
    });
    if (HasFatalFailure()) return;
    EXPECT_EQ(core->stats().states_free, core->stats().states);
    core.reset();
    if (std::filesystem::exists(folder_ + "/crashed")) std::filesystem::rename(folder_ + "/crashed", path());
    if (fails && !on_server()) damage(path(), 40);  // more, and no state with its blocks has all of its records
  }
  EXPECT_GT(hits_, 300);
  EXPECT_GT(corrupt_, 0);
  if (on_server()) {  // whether a prompt asks for a damaged part of the file depends on when it was written
    EXPECT_GT(failed_, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RecurrentStore,
                         ::testing::Combine(::testing::Values("mamba", "falcon_h1", "qwen3next", "qwen35"),
                                            ::testing::Values("arrival", "importance", "redis")),
                         [](const auto& one) {
                           return fmt::format("{}_{}", std::get<0>(one.param), std::get<1>(one.param));
                         });

// A prompt that one engine computes is continued by another one before the first one ends.
TEST(RecurrentRedis, EnginesShareAServer) {
  if (RedisProcess::program().empty()) GTEST_SKIP() << "redis-server is not installed";
  RedisProcess server;
  ASSERT_TRUE(server.started());
  for (const char* name : {"mamba", "qwen35"}) {
    const auto model = load_for(golden_model(name), *select_isa());
    ASSERT_TRUE(model);
    const int64_t vocab = model->info().vocab;
    EngineOptions o = options(1, 512, 8);
    o.state_stride = 16;
    o.kv_store = fmt::format("redis:port={},prefix={}", server.port(), name);
    const Request request = make_request(1, 70, 12, vocab);
    const auto open = [&] {
      auto executor = CpuExecutor::create(model, o);
      auto core =
          EngineCore::create(std::make_unique<CostedExecutor>(std::move(*executor), FixedSeconds{.load = 0.001}), o);
      return std::move(*core);
    };
    auto first = open(), second = open();
    ASSERT_TRUE(first->add(1, request).ok());
    const Shown expected = run_all(*first, vocab)[1];
    const int64_t pieces = ImageShape::of(first->kv().layout()).state_pieces();
    const int64_t image = ImageShape::of(first->kv().layout()).image_bytes();
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    for (RequestId id = 2; first->stats().store.written_bytes < (8 + pieces) * image; ++id) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      ASSERT_TRUE(first->add(id, make_request(5, 12, 1, vocab)).ok());  // collects what has been written
      run_all(*first, vocab);
    }
    ASSERT_TRUE(second->add(1, request).ok());
    EXPECT_TRUE(run_all(*second, vocab)[1].same_bits(expected)) << name;
    EXPECT_EQ(second->stats().store.hit_tokens, 64) << name;
  }
}

TEST(RecurrentStoreOptions, PartsOfAPromptAreNotFetched) {
  const auto model = load_for(golden_model("falcon_h1"), *select_isa());
  ASSERT_TRUE(model);
  EngineOptions o = options();
  o.kv_store = SsdStoreFlags{::testing::TempDir() + "recurrent_store_parts", 4 << 20, "importance", 0.5}.text();
  const auto core = EngineCore::create(model, o);
  ASSERT_FALSE(core.ok());
  EXPECT_EQ(core.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(
      core.error().message,
      "KV store ssd that fetches a part does not go with this model: it has recurrent layers, whose states are of "
      "all of a prompt's tokens; fetch all of a prompt's blocks");
}

TEST(RecurrentStoreOptions, AStoreNeedsSlotsForCopies) {
  const auto model = load_for(golden_model("mamba"), *select_isa());
  ASSERT_TRUE(model);
  EngineOptions o = options();
  const std::string path = ::testing::TempDir() + "recurrent_store_slots";
  const auto refusal = [&] {
    const auto core = EngineCore::create(model, o);
    return core.ok() ? std::string() : core.error().message;
  };
  o.kv_store = SsdStoreFlags{path, 20'000}.text();
  EXPECT_NE(refusal().find("a copy of the recurrent states take"), std::string::npos) << refusal();
  o.kv_store = SsdStoreFlags{path, 4 << 20}.text();
  EXPECT_EQ(refusal(), "");
  o.state_cache_bytes = 1;
  EXPECT_EQ(refusal().find("state cache: a copy of this model's recurrent states has"), 0u) << refusal();
  o.prefix_cache = false;
  EXPECT_EQ(refusal(), "KV store: holds blocks of the prefix cache, which is switched off");
}

}  // namespace
}  // namespace millrace
