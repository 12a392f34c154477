// Prefixes of models with recurrent states: a prompt that continues from a copy of a state has the bits of the same
// prompt alone, for any policy, chunks, threads, batch mates, preemptions, drafts and answers; and every slot is free,
// or held by the prefix cache, at the end.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "properties/costed_executor.h"
#include "properties/draft_runs.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

constexpr int64_t kStride = 16;

EngineOptions copying(int threads = 1, int64_t batch_tokens = 512, int64_t block_tokens = 8) {
  EngineOptions o = options(threads, batch_tokens, block_tokens);
  o.state_stride = kStride;
  return o;
}

class RecurrentPrefix : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    model_ = load_for(golden_model(GetParam()), *select_isa());
    ASSERT_TRUE(model_);
    vocab_ = model_->info().vocab;
  }
  // Requests with the same first `common` tokens.
  Request branch(int64_t seed, int64_t common, int64_t prompt = 70) const {
    Request request = make_request(seed, prompt, 12, vocab_);
    const Request first = make_request(1, prompt, 12, vocab_);
    std::copy_n(first.prompt.begin(), std::min(common, prompt), request.prompt.begin());
    return request;
  }
  Shown alone(const Request& request) const {
    EngineOptions o = options();
    o.prefix_cache = false;
    auto core = make_core(model_, o);
    EXPECT_TRUE(core->add(1, request).ok());
    Shown shown = run_all(*core, vocab_)[1];
    EXPECT_EQ(shown.cached, 0);
    return shown;
  }
  Shown next(EngineCore& core, const Request& request) {
    EXPECT_TRUE(core.add(++id_, request).ok());
    Shown shown = run_all(core, vocab_)[id_];
    EXPECT_EQ(core.stats().states_free, core.stats().states);
    return shown;
  }

  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0;
  RequestId id_ = 0;
};

TEST_P(RecurrentPrefix, PromptsContinueFromTheLastCopy) {
  const Request first = branch(1, 0), other = branch(2, 45), third = branch(4, 45);
  for (const char* policy : {"last", "every:k=2", "marconi"}) {
    for (const int64_t chunk : {5, 512}) {
      EngineOptions o = copying(2, chunk);
      o.max_streams = std::min<int64_t>(chunk, 8);
      o.state_evict = policy;
      auto core = make_core(model_, o);
      EXPECT_TRUE(next(*core, first).same_bits(alone(first))) << policy;
      const Shown again = next(*core, first);
      EXPECT_TRUE(again.same_bits(alone(first))) << policy;
      // An answer of 12 tokens reaches the multiple 80, whose copy replaces that of the prompt's end for marconi.
      EXPECT_EQ(again.cached, policy == std::string("marconi") ? 0 : 64) << policy;
      const Shown left = next(*core, other);
      EXPECT_TRUE(left.same_bits(alone(other))) << policy;
      EXPECT_EQ(left.cached, policy == std::string("every:k=2") ? 32 : 0) << policy;
      const Shown branched = next(*core, third);
      EXPECT_TRUE(branched.same_bits(alone(third))) << policy;
      EXPECT_EQ(branched.cached, 32) << policy;
    }
  }
}

TEST_P(RecurrentPrefix, TheNextTurnOfAConversationContinuesFromTheAnswer) {
  Request turn = make_request(1, 30, 40, vocab_);
  auto core = make_core(model_, copying(2));
  int64_t before = 0;
  for (int i = 0; i < 3; ++i) {
    const Shown shown = next(*core, turn);
    EXPECT_TRUE(shown.same_bits(alone(turn))) << i;
    EXPECT_EQ(shown.cached, before / kStride * kStride) << i;
    turn.prompt.insert(turn.prompt.end(), shown.tokens.begin(), shown.tokens.end());
    before = std::ssize(turn.prompt) - 1;  // the last token of an answer is not computed
    turn.prompt.push_back(static_cast<TokenId>(i + 1));
    turn.max_tokens = 10;
  }
}

TEST_P(RecurrentPrefix, StreamsThatArriveTogetherComputeTheirBeginningOnce) {
  auto core = make_core(model_, copying(2, 20));
  const std::vector<Request> requests = {branch(1, 0), branch(2, 50), branch(3, 50), branch(4, 70)};
  for (size_t i = 0; i < requests.size(); ++i) ASSERT_TRUE(core->add(i + 1, requests[i]).ok());
  auto shown = run_all(*core, vocab_);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_TRUE(shown[i + 1].same_bits(alone(requests[i]))) << i;
  EXPECT_EQ(core->stats().cached_tokens, 48 + 48 + 64);
}

TEST_P(RecurrentPrefix, BitsDoNotDependOnPreemptions) {
  for (int64_t swap_tokens : {0, 4096}) {
    EngineOptions o = copying(2, 40);
    o.kv_tokens = 160;
    o.max_streams = 4;
    o.kv_tier = memory_tier(swap_tokens);
    o.policy = "fcfs:reserve=prompt";
    auto executor = CpuExecutor::create(model_, o);
    ASSERT_TRUE(executor.ok());
    auto made = EngineCore::create(std::make_unique<CostedExecutor>(std::move(*executor), FixedSeconds{1, 1e-3, 1}), o);
    ASSERT_TRUE(made.ok());
    auto core = std::move(*made);
    std::map<RequestId, Request> requests;
    for (RequestId id = 1; id <= 6; ++id) {
      requests[id] = branch(static_cast<int64_t>(id), 24, 20 + 3 * static_cast<int64_t>(id));
      requests[id].max_tokens = 40;
      ASSERT_TRUE(core->add(id, requests[id]).ok());
    }
    auto shown = run_all(*core, vocab_);
    EXPECT_GT(core->stats().preemptions, 0);
    EXPECT_GT(core->stats().state_cache.hits, 0);
    EXPECT_EQ(core->stats().states_free, core->stats().states);
    for (const auto& [id, one] : requests) EXPECT_TRUE(shown[id].same_bits(alone(one))) << id;
  }
}

TEST_P(RecurrentPrefix, DraftsEndWhereCopiesAreTaken) {
  Request repeats = make_request(2, 6, 100, vocab_);
  repeats.prompt.assign(6, 2);
  const std::vector<TokenId> first = alone(repeats).tokens;
  Request turn = repeats;
  turn.prompt.insert(turn.prompt.end(), first.begin(), first.end());
  turn.prompt.push_back(3);
  turn.max_tokens = 10;
  const std::vector<TokenId> answered = alone(turn).tokens;
  // The answers themselves are drafted, with mistakes: whether they repeat depends on the instruction set.
  const Truth truth = {{1, first}, {2, answered}};
  EngineOptions o = copying(2);
  o.drafter = "ngram:min=1,k=5";
  auto core = core_with(model_, o, scripted_drafter(truth, 5, 0.1));
  ASSERT_TRUE(core);
  EXPECT_EQ(next(*core, repeats).tokens, first);
  EXPECT_GT(core->stats().accepted_tokens, 0);
  EXPECT_EQ(core->stats().state_cache.stored, 105 / kStride);
  const Shown second = next(*core, turn);
  EXPECT_EQ(second.tokens, answered);
  EXPECT_EQ(second.cached, 105 / kStride * kStride);
}

TEST_P(RecurrentPrefix, FewSlotsHoldTheNewestCopies) {
  EngineOptions o = copying();
  o.max_streams = 2;
  auto measured = make_core(model_, o);
  o.state_cache_bytes = measured->stats().state_cache.slot_bytes;  // one slot
  auto core = make_core(model_, o);
  EXPECT_EQ(core->stats().state_cache.slots, 1);
  const Request first = branch(1, 0), other = branch(2, 0);
  for (const Request* request : {&first, &other, &other, &first})
    EXPECT_TRUE(next(*core, *request).same_bits(alone(*request)));
  EXPECT_EQ(core->stats().state_cache.held, 1);
  EXPECT_GT(core->stats().state_cache.evicted, 0);
  o.state_cache_bytes = 1;
  auto none = EngineCore::create(model_, o);
  ASSERT_FALSE(none.ok());
  EXPECT_TRUE(none.error().message.starts_with("state cache: a copy of this model's recurrent states has "));
}

TEST_P(RecurrentPrefix, StridesAreWholeBlocks) {
  EngineOptions o = copying(1, 512, 24);  // the stride is 48
  auto core = make_core(model_, o);
  const Request first = branch(1, 0);
  const Shown expected = alone(first);
  EXPECT_TRUE(next(*core, first).same_bits(expected));
  const Shown again = next(*core, first);
  EXPECT_TRUE(again.same_bits(expected));
  EXPECT_EQ(again.cached, 48);
}

TEST_P(RecurrentPrefix, AnswersShareTheirPrompt) {
  Request answers = branch(1, 0);
  answers.n = 3;
  auto core = make_core(model_, copying(2));
  ASSERT_TRUE(core->add(1, answers).ok());
  std::map<int64_t, std::vector<TokenId>> tokens;
  std::vector<TokenEvent> events;
  while (!core->idle()) {
    events.clear();
    core->step(events);
    for (const TokenEvent& event : events)
      if (event.token >= 0) tokens[event.answer].push_back(event.token);
    ASSERT_TRUE(core->check_blocks().ok());
  }
  for (int64_t i = 0; i < 3; ++i) {
    Request one = branch(1, 0);
    one.sampling.seed += static_cast<uint64_t>(i);
    EXPECT_EQ(tokens[i], alone(one).tokens) << i;
  }
  EXPECT_EQ(core->stats().states_free, core->stats().states);
  EXPECT_EQ(core->stats().prompt_tokens, 70 + 2) << "further answers compute the prompt's last token";
  EXPECT_EQ(core->stats().state_cache.held, 4) << "of the prompt, and of each answer";
}

// The importance of blocks is observed in a layer with attention; where there is none, uses count alone.
TEST_P(RecurrentPrefix, EveryPrefixEvictorGoesWithIt) {
  const Request first = branch(1, 0);
  const Shown expected = alone(first);
  for (const char* evictor : {"lru", "lfu", "length_aware", "importance"}) {
    EngineOptions o = copying(1, 24);
    o.prefix_evict = evictor;
    o.kv_tokens = 160;  // of two streams
    auto core = make_core(model_, o);
    for (const int64_t seed : {1, 2, 1, 3, 1})
      EXPECT_TRUE(next(*core, branch(seed, 0)).same_bits(seed == 1 ? expected : alone(branch(seed, 0)))) << evictor;
  }
}

TEST_P(RecurrentPrefix, FilesHoldTheStateBehindTheirBlocks) {
  const std::string path = std::filesystem::temp_directory_path() / fmt::format("recurrent_prefix.{}", getpid());
  const Request first = branch(1, 0), other = branch(2, 66);
  auto core = make_core(model_, copying());
  next(*core, first);
  const auto saved = core->save_prefix(first, path);
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  EXPECT_EQ(*saved, 64);
  auto loading = make_core(model_, copying(2, 20));
  const auto loaded = loading->load_prefix(first, path);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(*loaded, 64);
  EXPECT_TRUE(loading->check_blocks().ok());
  const Shown shown = next(*loading, other);
  EXPECT_EQ(shown.cached, 64);
  EXPECT_TRUE(shown.same_bits(alone(other)));
  EngineOptions off = copying();
  off.prefix_cache = false;
  EXPECT_FALSE(make_core(model_, off)->load_prefix(first, path).ok());
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(Models, RecurrentPrefix,
                         ::testing::Values("mamba", "mamba_odd", "falcon_h1", "qwen3next", "qwen35"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace millrace
