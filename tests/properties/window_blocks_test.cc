// Streams of models whose layers see a window give back the blocks behind it, and nothing else changes: the same bits
// as with all blocks kept, alone and in a batch, in chunks, with preemptions, swaps, drafts, several answers, beams and
// cached prefixes. The accounts say how much a stream holds.
#include <unistd.h>

#include <filesystem>

#include "properties/draft_runs.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

constexpr int64_t kContext = 900, kWindow = 8, kBlock = 16, kPartition = 256;

std::shared_ptr<const LanguageModel> long_model(const std::string& name, Isa isa) {
  WithIsa scope(isa);
  auto model = LanguageModel::load(golden_model(name), {.threads = 1, .context = kContext});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return model.ok() ? *model : nullptr;
}

EngineOptions long_options(int threads = 1, int64_t batch_tokens = 96, int64_t block_tokens = kBlock) {
  EngineOptions o = options(threads, batch_tokens, block_tokens);
  o.context = kContext;
  o.kv_tokens = 16384;
  return o;
}

EngineOptions keeping(EngineOptions o) {
  o.keep_window_keys = true;
  return o;
}

// Blocks of the window's group that are in use, by streams or by the prefix cache.
int64_t window_blocks(const EngineCore& core) {
  const KvPool& pool = core.kv().group(core.kv().groups() - 1);
  return pool.total_blocks() - pool.free_blocks();
}

class WindowBlocks : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    model_ = long_model(GetParam(), *select_isa());
    ASSERT_TRUE(model_);
    vocab_ = model_->info().vocab;
  }
  std::map<RequestId, Shown> run(const EngineOptions& o, const std::vector<Request>& requests) {
    auto core = make_core(model_, o);
    EXPECT_EQ(core->kv().gives_back(), !o.keep_window_keys);
    for (size_t i = 0; i < requests.size(); ++i) EXPECT_TRUE(core->add(i + 1, requests[i]).ok());
    auto shown = run_all(*core, vocab_);
    stats_ = core->stats();
    return shown;
  }
  void expect_same(const std::map<RequestId, Shown>& a, const std::map<RequestId, Shown>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [id, shown] : a) EXPECT_TRUE(shown.same_bits(b.at(id))) << "stream " << id;
  }
  std::vector<Request> mixed() const {
    return {make_request(1, 700, 40, vocab_), make_request(2, 5, 330, vocab_), make_request(3, 301, 60, vocab_),
            make_request(4, 88, 20, vocab_)};
  }

  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0;
  EngineStats stats_;
};

TEST_P(WindowBlocks, BitsAreThoseOfKeepingAll) {
  const auto kept = run(keeping(long_options(1, 512)), mixed());
  expect_same(run(long_options(), mixed()), kept);
  expect_same(run(long_options(3, 37, 16), mixed()), kept);
  expect_same(run(long_options(2, 64, 24), mixed()), kept);  // blocks that do not divide a partition
  const std::vector<Request> requests = mixed();
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_TRUE(run(long_options(2, 61, 4), {requests[i]}).at(1).same_bits(kept.at(i + 1))) << i;
}

// A stream of n tokens holds at most the window before a step's first token, the step, and parts of two blocks.
TEST_P(WindowBlocks, AStreamHoldsItsWindowAndAStep) {
  EngineOptions o = long_options();
  o.prefix_cache = false;
  o.max_streams = 1;
  auto core = make_core(model_, o);
  ASSERT_TRUE(core->add(1, make_request(1, 650, 200, vocab_)).ok());
  const int64_t most = (kWindow - 1 + o.batch_tokens + kBlock + kBlock - 1) / kBlock;
  std::vector<TokenEvent> events;
  int64_t largest = 0, at_the_end = 0;
  while (!core->idle()) {
    core->step(events);
    largest = std::max(largest, window_blocks(*core));
    if (!core->idle()) at_the_end = window_blocks(*core);
  }
  EXPECT_GT(largest, 0);
  EXPECT_LE(largest, most);
  EXPECT_LE(at_the_end, 2);  // a window of 8 tokens
  EXPECT_EQ(window_blocks(*core), 0);
}

TEST_P(WindowBlocks, PreemptedAndSwappedStreamsHaveTheSameBits) {
  const std::vector<Request> requests = {make_request(1, 300, 250, vocab_), make_request(2, 320, 250, vocab_),
                                         make_request(3, 310, 250, vocab_), make_request(4, 290, 250, vocab_)};
  const auto expected = run(keeping(long_options()), requests);
  for (const int64_t swap : {0, 4000}) {
    for (const bool caches : {true, false}) {
      EngineOptions o = long_options();
      o.kv_tokens = 1300;
      o.policy = "fcfs:reserve=prompt";
      o.kv_tier = memory_tier(swap);
      o.prefix_cache = caches;
      const bool all_windows = make_core(model_, o)->kv().groups() == 1;
      if (all_windows) o.kv_tokens = 360;
      expect_same(run(o, requests), expected);
      if (!all_windows) {  // else each is promised all that it may hold
        EXPECT_GT(stats_.preemptions, 0) << swap << " " << caches;
      }
    }
  }
}

// Where every layer has a window no stream lacks a block, so that streams are sent away by hand here, at every stage,
// to be computed again or into a tier.
TEST_P(WindowBlocks, PreemptedAtAnyStageTheyContinue) {
  const Request one = make_request(1, 200, 60, vocab_);
  const auto expected = run(keeping(long_options()), {one});
  for (const bool swap : {false, true}) {
    EngineOptions o = long_options(1, 48);
    o.kv_tier = memory_tier(2000);
    o.prefix_cache = !swap;
    auto core = make_core(model_, o);
    ASSERT_TRUE(core->add(1, one).ok());
    std::vector<TokenId> tokens;
    std::vector<TokenEvent> events;
    int64_t next = 3;
    for (int64_t steps = 0; !core->idle(); ++steps) {
      ASSERT_LT(steps, 10'000);
      if (steps == next) {  // further apart each time, or the stream makes no progress
        next += 4 * (2 + (swap ? 1 : 6) * core->stats().preemptions);
        StepPlan plan;
        plan.preempted = {{1, swap}};
        ASSERT_TRUE(core->replay(plan, events).ok());
      } else {
        core->step(events);
      }
      ASSERT_TRUE(core->check_blocks().ok());
    }
    for (const TokenEvent& event : events)
      if (event.token >= 0) tokens.push_back(event.token);
    EXPECT_EQ(tokens, expected.at(1).tokens) << swap;
    EXPECT_GT(core->stats().preemptions, 1) << swap;
    EXPECT_EQ(core->stats().swapped_out_tokens > 0, swap);
  }
}

TEST_P(WindowBlocks, CachedPrefixesHaveTheSameBits) {
  Request first = make_request(1, 600, 30, vocab_), longer = first, branch = first;
  for (int64_t i = 0; i < 60; ++i) longer.prompt.push_back(static_cast<TokenId>(i % vocab_));
  branch.prompt.resize(320);
  for (int64_t i = 0; i < 50; ++i) branch.prompt.push_back(static_cast<TokenId>((7 * i) % vocab_));
  std::map<int, Shown> expected;
  for (int i = 0; i < 3; ++i)
    expected[i] = run(keeping(long_options()), {i == 0 ? first : i == 1 ? longer : branch}).at(1);
  for (const int64_t kv_tokens : {16384, 800}) {
    EngineOptions o = long_options();
    o.max_streams = 4;
    o.kv_tokens = kv_tokens;
    auto core = make_core(model_, o);
    RequestId id = 0;
    for (const int i : {0, 1, 2, 0, 1, 2}) {
      ASSERT_TRUE(core->add(++id, i == 0 ? first : i == 1 ? longer : branch).ok());
      const Shown shown = run_all(*core, vocab_)[id];
      EXPECT_TRUE(shown.same_bits(expected[i])) << id;
      if (kv_tokens > 1000 && id > 1) {
        EXPECT_GT(shown.cached, i == 2 ? 300 : 500) << id;
      }
    }
  }
}

// Streams that arrive together compute a common prefix once.
TEST_P(WindowBlocks, StreamsWaitForACommonPrefix) {
  std::vector<Request> requests;
  for (int64_t i = 0; i < 4; ++i) {
    requests.push_back(make_request(1, 400, 20, vocab_));
    for (int64_t j = 0; j < 20; ++j) requests.back().prompt.push_back(static_cast<TokenId>((i * 5 + j) % vocab_));
  }
  const auto expected = run(keeping(long_options()), requests);
  expect_same(run(long_options(), requests), expected);
  EXPECT_GT(stats_.cached_tokens, 3 * 380);
}

TEST_P(WindowBlocks, DraftsAreVerifiedWithTheSameBits) {
  Request request = make_request(2, 30, 400, vocab_);
  while (request.prompt.size() < 330) request.prompt.push_back(request.prompt[request.prompt.size() - 30]);
  const auto expected = run(keeping(long_options()), {request});
  for (const char* drafter : {"ngram:min=1,k=6", "ngram:min=1,k=3,branches=3", "lookahead:w=4,n=3,g=3"}) {
    EngineOptions o = long_options();
    o.drafter = drafter;
    auto core = make_core(model_, o);
    ASSERT_TRUE(core->kv().gives_back());
    ASSERT_TRUE(core->add(1, request).ok());
    std::vector<TokenId> tokens;
    std::vector<TokenEvent> events;
    while (!core->idle()) {
      core->step(events);
      EXPECT_TRUE(core->check_blocks().ok());
    }
    for (const TokenEvent& event : events)
      if (event.token >= 0) tokens.push_back(event.token);
    EXPECT_EQ(tokens, expected.at(1).tokens) << drafter;
    if (std::string(drafter).starts_with("ngram")) {
      EXPECT_GT(core->stats().drafted_tokens, 0) << drafter;
    }
  }
}

// Three right tokens in a tree, each behind a wrong one.
class TreeOfTruth final : public TextDrafter {
 public:
  explicit TreeOfTruth(std::vector<TokenId> truth) : truth_(std::move(truth)) {}
  void propose(const Sequence& stream, int64_t most, Draft& out) override {
    const int64_t next = stream.generated();
    if (most < 6 || next + 3 > std::ssize(truth_)) return;
    for (int64_t i = 0; i < 3; ++i) {
      const TokenId right = truth_[static_cast<size_t>(next + i)];
      const auto parent = static_cast<int32_t>(2 * i - 1);
      out.tokens.insert(out.tokens.end(), {right == 0 ? 1 : right - 1, right});
      out.parents.insert(out.parents.end(), {parent, parent});
    }
  }

 private:
  std::vector<TokenId> truth_;
};

TEST_P(WindowBlocks, KeptTokensOfATreeMoveInEveryGroup) {
  const std::vector<Request> requests = {make_request(2, 330, 300, vocab_)};
  const auto expected = run(keeping(long_options()), requests);
  EngineOptions o = long_options();
  o.drafter = "ngram:k=11,branches=1";
  auto core = core_with(
      model_, o, text_drafter({.longest = 6, .trees = true}, std::make_unique<TreeOfTruth>(expected.at(1).tokens)));
  ASSERT_TRUE(core && core->kv().gives_back());
  const DraftOutcome drafted = run_requests(*core, requests, 1);
  const DraftOutcome plain = run_requests(*make_core(model_, keeping(long_options())), requests, 1);
  EXPECT_EQ(drafted.emitted, plain.emitted);
  EXPECT_GT(drafted.stats.accepted_tokens, 200);
}

// Layers with a window may have other formats; results depend on nothing else then, either.
TEST_P(WindowBlocks, GroupsHaveFormatsOfTheirOwn) {
  const std::vector<Request> requests = mixed();
  EngineOptions o = long_options();
  const auto plain = run(o, requests);
  for (const char* format : {"f16:values=bf16", "f16:window=f32", "bf16:values=f32,window=f16,window_values=bf16"}) {
    o.kv_format = format;
    const auto mixed_formats = run(o, requests);
    EXPECT_FALSE(mixed_formats.at(1).same_bits(plain.at(1))) << format;
    EngineOptions other = long_options(3, 33, 8);
    other.kv_format = format;
    other.prefix_cache = false;
    expect_same(run(other, requests), mixed_formats);
  }
  o.kv_format = "f16:window=f16,values=f16";
  expect_same(run(o, requests), plain);
}

// What a codec encodes is given back like rows, and the raw rows of the newest tokens are not.
TEST_P(WindowBlocks, EncodedBlocksAreGivenBack) {
  const std::vector<Request> requests = {make_request(1, 500, 40, vocab_), make_request(2, 70, 200, vocab_),
                                         make_request(3, 301, 60, vocab_)};
  for (const char* format : {"kivi:bits=4", "kivi:residual=70"}) {
    EngineOptions o = long_options();
    o.kv_format = format;
    const auto kept = run(keeping(o), requests);
    expect_same(run(o, requests), kept);
    o.batch_tokens = 33;
    o.kv_tokens = 1000;
    o.kv_tier = memory_tier(1000);
    o.policy = "fcfs:reserve=prompt";
    expect_same(run(o, requests), kept);
  }
}

std::map<int64_t, std::vector<TokenId>> window_answers_of(EngineCore& core) {
  std::map<int64_t, std::vector<TokenId>> out;
  std::vector<TokenEvent> events;
  while (!core.idle()) {
    core.step(events);
    EXPECT_TRUE(core.check_blocks().ok());
  }
  for (const TokenEvent& event : events)
    if (event.token >= 0) out[event.answer].push_back(event.token);
  return out;
}

TEST_P(WindowBlocks, AnswersAndBeamsShareWhatTheySee) {
  Request answers = make_request(3, 350, 40, vocab_), beams = make_request(4, 333, 30, vocab_);
  answers.n = 3;
  answers.sampling.temperature = 1;
  beams.beams = 3;
  beams.sampling.temperature = 0;
  for (const Request& request : {answers, beams}) {
    const EngineOptions o = long_options();
    auto kept = make_core(model_, keeping(o)), given = make_core(model_, o);
    ASSERT_TRUE(kept->add(1, request).ok());
    ASSERT_TRUE(given->add(1, request).ok());
    EXPECT_EQ(window_answers_of(*given), window_answers_of(*kept));
    EXPECT_TRUE(given->kv().gives_back());
  }
}

// Random loads in little memory: requests of all lengths, cancelled ones, common beginnings.
TEST_P(WindowBlocks, RandomLoadsKeepTheAccountsAndTheBits) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const auto draw = [&](uint64_t what, uint64_t i) { return philox_uniform(seed, what, i); };
    std::vector<Request> requests;
    for (uint64_t i = 0; i < 10; ++i) {
      Request r = make_request(static_cast<int64_t>(1 + i % 3), 1 + static_cast<int64_t>(draw(1, i) * 500),
                               1 + static_cast<int64_t>(draw(2, i) * 120), vocab_);
      r.sampling.seed = i;
      r.prompt.push_back(static_cast<TokenId>(i));
      requests.push_back(std::move(r));
    }
    const auto expected = run(keeping(long_options(1, 200)), requests);
    EngineOptions o = long_options(1, 20 + static_cast<int64_t>(draw(3, 0) * 60));
    o.kv_tokens = 1200;
    o.max_streams = 3;
    o.resident_streams = 5;
    o.policy = "fcfs:reserve=prompt";
    o.kv_tier = memory_tier(seed % 2 ? 2000 : 0);
    expect_same(run(o, requests), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, WindowBlocks, ::testing::Values("gemma2", "gemma3", "mistral"),
                         [](const auto& test) { return std::string(test.param); });

TEST(WindowBlocksEdges, WhatNeedsAllBlocksKeepsThem) {
  const auto model = long_model("gemma3", *select_isa());
  ASSERT_TRUE(model);
  EXPECT_EQ(make_core(model, long_options())->kv().groups(), 2);
  const auto groups = [&](auto change) {
    EngineOptions o = long_options();
    change(o);
    return make_core(model, o)->kv().groups();
  };
  EXPECT_EQ(groups([](EngineOptions& o) { o.keep_window_keys = true; }), 1);
  EXPECT_EQ(groups([](EngineOptions& o) { o.kv_format = "kivi:group=32"; }), 2);
  EXPECT_EQ(groups([](EngineOptions& o) { o.kv_pool = "virtual"; }), 1);
  EXPECT_EQ(groups([](EngineOptions& o) { o.document_context = "kvlink"; }), 1);
  EXPECT_EQ(groups([](EngineOptions& o) { o.context = 300; }), 1);  // a stream would hold as much
}

TEST(WindowBlocksEdges, RefusalsSayWhatToDo) {
  const auto model = long_model("gemma3", *select_isa());
  ASSERT_TRUE(model);
  auto core = make_core(model, long_options());
  Request request = make_request(1, 400, 4, model->info().vocab);
  ASSERT_TRUE(core->add(1, request).ok());
  run_all(*core, model->info().vocab);
  const std::string path =
      (std::filesystem::temp_directory_path() / ("window_blocks." + std::to_string(getpid()))).string();
  EXPECT_EQ(
      core->save_prefix(request, path).error().message,
      "a KV file does not go with this engine: its layers with a window keep only the newest blocks; keep all of them "
      "(--keep-window-keys)");
  request.documents = {{1, 40}};
  request.document_context = "kvlink";
  EXPECT_EQ(core->add(2, request).error().message,
            "context kvlink does not go with this engine: its layers with a window keep only the newest keys; keep all "
            "of them (--keep-window-keys), or choose "
            "the context for the whole engine");
  EXPECT_TRUE(make_core(model, keeping(long_options()))->add(1, request).ok());
}

// Of a budget, what the window's layers do not need goes to the layers that see all.
TEST(WindowBlocksEdges, APoolOfTheSameTokensTakesLessMemory) {
  const auto model = long_model("gemma3", *select_isa());
  ASSERT_TRUE(model);
  EngineOptions o = long_options(1, 32);
  o.max_streams = 1;
  o.kv_tokens = kContext;
  const int64_t given = make_core(model, o)->stats().kv_bytes, kept = make_core(model, keeping(o))->stats().kv_bytes;
  EXPECT_LT(given, kept / 2);  // 6 of 7 layers see 8 tokens
}

}  // namespace
}  // namespace millrace
