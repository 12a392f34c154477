// Streams with LoRA adapters, with different ones and with none, in one batch: each has the same bits as alone;
// prefixes are shared only among equal adapters; a stream keeps its adapter until it ends, even if the name is removed
// or replaced.
#include <filesystem>

#include "properties/stream_bits.h"
#include "run/adapter_registry.h"
#include "test_paths.h"

namespace millrace {
namespace {

using namespace testing;

class EngineAdapters : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = load_for(golden_model("llama3"), *select_isa());
    ASSERT_TRUE(model_);
    vocab_ = model_->info().vocab;
    folder_ = std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/lora/llama3";
  }

  EngineOptions with_adapters(int threads, int64_t batch_tokens, int64_t block_tokens) {
    EngineOptions o = options(threads, batch_tokens, block_tokens);
    o.adapters = {"one=" + folder_, "two=" + folder_ + "/adapter.gguf"};
    return o;
  }
  Request asking(int64_t seed, int64_t prompt, std::vector<AdapterUse> adapters) {
    Request r = make_request(seed, prompt, 12, vocab_);
    r.adapters = std::move(adapters);
    return r;
  }
  // All ways of using the adapters.
  std::vector<Request> requests() {
    return {asking(1, 30, {}),
            asking(1, 30, {{"one"}}),
            asking(1, 30, {{"one", 0.5}}),
            asking(2, 21, {{"two", -1}}),
            asking(3, 40, {{"one", 0.25}, {"two", 0.5}}),
            asking(4, 7, {{"one"}}),
            asking(5, 33, {})};
  }
  Shown alone(const Request& request) {
    auto core = make_core(model_, with_adapters(1, 512, 16));
    EXPECT_TRUE(core->add(1, request).ok());
    return run_all(*core, vocab_)[1];
  }

  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0;
  std::string folder_;
};

TEST_F(EngineAdapters, MixedBatchesChangeNoBit) {
  const auto all = requests();
  std::vector<Shown> expected;
  for (const Request& request : all) expected.push_back(alone(request));
  EXPECT_FALSE(expected[0].same_bits(expected[1]));
  EXPECT_FALSE(expected[1].same_bits(expected[2]));
  struct Way {
    int threads;
    int64_t batch_tokens, block_tokens, kv_tokens;
  };
  for (const Way& way : {Way{1, 512, 16, 4096}, Way{2, 512, 16, 4096}, Way{2, 11, 4, 4096}, Way{1, 40, 8, 136}}) {
    EngineOptions o = with_adapters(way.threads, way.batch_tokens, way.block_tokens);
    o.kv_tokens = way.kv_tokens;
    o.policy = "fcfs:reserve=prompt";  // in little memory some streams are preempted and recomputed
    auto core = make_core(model_, o);
    for (size_t i = 0; i < all.size(); ++i) ASSERT_TRUE(core->add(i + 1, all[i]).ok());
    auto shown = run_all(*core, vocab_);
    for (size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(shown[i + 1].tokens, expected[i].tokens) << way.batch_tokens << " request " << i;
    if (core->stats().preemptions == 0) {
      for (size_t i = 0; i < all.size(); ++i)
        EXPECT_TRUE(shown[i + 1].same_bits(expected[i])) << way.batch_tokens << " request " << i;
    }
  }
}

TEST_F(EngineAdapters, PrefixesAreSharedOnlyAmongEqualAdapters) {
  auto core = make_core(model_, with_adapters(1, 512, 4));
  RequestId next = 1;
  const auto cached = [&](const Request& request) {
    const RequestId id = next++;
    EXPECT_TRUE(core->add(id, request).ok());
    return run_all(*core, vocab_)[id].cached;
  };
  EXPECT_EQ(cached(asking(1, 30, {})), 0);
  EXPECT_EQ(cached(asking(1, 30, {{"one"}})), 0);
  EXPECT_EQ(cached(asking(1, 30, {{"one", 0.5}})), 0);
  EXPECT_EQ(cached(asking(1, 30, {{"one"}, {"two"}})), 0);
  EXPECT_EQ(cached(asking(1, 30, {})), 28);
  EXPECT_EQ(cached(asking(1, 30, {{"one"}})), 28);
  EXPECT_EQ(cached(asking(1, 30, {{"one", 0}})), 28);  // none of it is from the plain model
  // Equal weights under another name share the prefix; other weights under the same name do not.
  ASSERT_TRUE(core->executor().adapters()->load("copy", folder_).ok());
  EXPECT_EQ(cached(asking(1, 30, {{"copy"}})), 28);
}

TEST_F(EngineAdapters, StreamsKeepTheirAdapters) {
  const Request request = asking(7, 20, {{"one"}});
  const Shown expected = alone(request);
  auto core = make_core(model_, with_adapters(1, 512, 4));
  ASSERT_TRUE(core->add(1, request).ok());
  std::vector<TokenEvent> events;
  core->step(events);
  ASSERT_TRUE(core->executor().adapters()->unload("one"));
  EXPECT_FALSE(core->executor().adapters()->unload("one"));
  const auto refused = core->add(2, request);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::user);
  EXPECT_NE(refused.error().message.find("there are: two"), std::string::npos) << refused.error().message;
  while (!core->idle()) core->step(events);
  std::vector<TokenId> tokens;
  for (const auto& event : events) tokens.push_back(event.token);
  EXPECT_EQ(tokens, expected.tokens);
}

TEST_F(EngineAdapters, WorkWithBeamsAndSeveralAnswers) {
  Request beams = asking(2, 18, {{"one"}});
  beams.beams = beams.n = 3;
  Request answers = asking(3, 18, {{"one"}});
  answers.n = 3;
  const auto tokens = [&](bool together, const Request& request) {
    auto core = make_core(model_, with_adapters(1, 16, 4));
    if (together) {
      EXPECT_TRUE(core->add(9, asking(5, 25, {{"two", 2}})).ok());
    }
    EXPECT_TRUE(core->add(10, request).ok());
    std::map<int64_t, std::vector<TokenId>> out;
    std::vector<TokenEvent> events;
    while (!core->idle()) core->step(events);
    for (const auto& event : events)
      if (event.request == 10) out[event.answer].push_back(event.token);
    return out;
  };
  for (const Request& request : {beams, answers}) {
    const auto alone = tokens(false, request);
    EXPECT_EQ(alone.size(), 3u);
    EXPECT_EQ(tokens(true, request), alone);
    Request plain = request;
    plain.adapters.clear();
    EXPECT_NE(tokens(false, plain), alone);
  }
}

TEST_F(EngineAdapters, AreCountedAndRefusedBeyondTheBudget) {
  auto core = make_core(model_, with_adapters(1, 512, 4));
  const auto uses = core->executor().accounts()->list();
  const auto found = std::ranges::find(uses, "adapters", &MemoryAccount::name);
  ASSERT_NE(found, uses.end());
  const auto adapters = core->executor().adapters()->list();
  ASSERT_EQ(adapters.size(), 2u);
  EXPECT_EQ(adapters[0].rank, 4);
  EXPECT_EQ(adapters[0].matrices, 15);
  EXPECT_EQ(found->bytes, adapters[0].bytes + adapters[1].bytes);
  core->executor().adapters()->unload("one");
  EXPECT_EQ(core->executor().accounts()->list()[static_cast<size_t>(found - uses.begin())].bytes, adapters[1].bytes);
}

}  // namespace
}  // namespace millrace
