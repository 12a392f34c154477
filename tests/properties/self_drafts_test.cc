// A model that drafts with some of its own blocks left out, on the engine's own keys and values: answers are those of
// plain decoding, for every stream and every way to run it.
#include <unistd.h>

#include "properties/draft_runs.h"
#include "run/drafting/skip_choice.h"

namespace millrace {
namespace {

using namespace testing;

class SelfDrafts : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(model_); }
  std::shared_ptr<const LanguageModel> model_ = load_for(golden_model(GetParam()), *select_isa());
};

TEST_P(SelfDrafts, EventsAreThoseOfPlainDecoding) {
  int64_t accepted = 0, preempted = 0;
  for (uint64_t round = 1; round <= 2; ++round) {
    const auto requests = mixed_requests(round, model_->info().vocab);
    for (const auto& [name, o] : settings()) {
      const DraftOutcome plain = run_requests(*make_core(model_, o), requests, 1);
      for (const char* drafter : {"self:k=4,mlp=0", "self:attn=0-1,mlp=0-1,p=0.05"}) {
        SCOPED_TRACE(fmt::format("round {}, {}, {}", round, name, drafter));
        EngineOptions drafting = o;
        drafting.drafter = drafter;
        auto core = make_core(model_, drafting);
        ASSERT_TRUE(core);
        const DraftOutcome drafted = run_requests(*core, requests, 1);
        EXPECT_EQ(drafted.emitted, plain.emitted);
        EXPECT_GT(drafted.stats.drafted_tokens, 0);
        accepted += drafted.stats.accepted_tokens;
        preempted += drafted.stats.preemptions;
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(accepted, 20);
  EXPECT_GT(preempted, 10);
}

// With nothing left out the drafts are the answer, unless a pass reads a wrong key; and no pass leaves one behind.
TEST_P(SelfDrafts, TheWholeModelDraftsWhatItSays) {
  const std::string none = fmt::format("{}whole_model_skips_{}.json", ::testing::TempDir(), ::getpid());
  const SkippedBlocks nothing{std::vector<uint8_t>(static_cast<size_t>(model_->parts().model->spec().layer_count())),
                              std::vector<uint8_t>(static_cast<size_t>(model_->parts().model->spec().layer_count()))};
  ASSERT_TRUE(write_skips(none, nothing, *model_).ok());
  for (const auto& [name, o] : settings()) {
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(fmt::format("{}, {} threads", name, threads));
      EngineOptions drafting = o;
      drafting.threads = threads;
      drafting.drafter = "self:k=4,p=0,skip=" + none;
      auto core = make_core(model_, drafting);
      ASSERT_TRUE(core);
      std::vector<Request> requests;
      for (int64_t i = 0; i < 5; ++i) requests.push_back(make_request(i, 9 + 5 * i, 40 - i, model_->info().vocab));
      const DraftOutcome run = run_requests(*core, requests, 2);
      EXPECT_GT(run.stats.drafted_tokens, 30);
      EXPECT_EQ(run.stats.accepted_tokens, run.stats.drafted_tokens);
    }
  }
  std::remove(none.c_str());
}

TEST_P(SelfDrafts, ThePrefixIndexGetsTheWholeModelsKeys) {
  std::vector<Request> first, second;
  const int64_t vocab = model_->info().vocab;
  for (int64_t i = 0; i < 4; ++i) first.push_back(make_request(i, 11 + i, 50, vocab));
  EngineOptions o = options(1, 512, 4);
  const DraftOutcome plain = run_requests(*make_core(model_, o), first, 1);
  for (size_t i = 0; i < first.size(); ++i) {
    Request r = first[i];
    const auto& answer = plain.truth.at(static_cast<RequestId>(i + 1));
    r.prompt.insert(r.prompt.end(), answer.begin(), answer.end());
    r.max_tokens = 20;
    second.push_back(std::move(r));
  }
  o.prefix_cache = false;
  const DraftOutcome expected = run_requests(*make_core(model_, o), second, 1);
  o.prefix_cache = true;
  o.drafter = "self:attn=1,mlp=0,p=0";
  auto core = make_core(model_, o);
  ASSERT_TRUE(core);
  EXPECT_EQ(run_requests(*core, first, 1).emitted, plain.emitted);
  const int64_t before = core->stats().cached_tokens;
  EXPECT_EQ(run_requests(*core, second, 1).emitted, expected.emitted);
  EXPECT_GE(core->stats().cached_tokens - before, 4 * 50);
}

// A draft that ends early makes the step's chunk shorter than planned; a replayed plan is shortened in the same way.
TEST_P(SelfDrafts, RecordedPlansReplay) {
  const auto requests = mixed_requests(5, model_->info().vocab);
  EngineOptions o = options(1, 40, 8);
  o.drafter = "self:k=5,mlp=1,p=0.6,accept=0.5";
  auto first = make_core(model_, o), second = make_core(model_, o);
  ASSERT_TRUE(first && second);
  for (size_t i = 0; i < requests.size(); ++i)
    for (EngineCore* core : {first.get(), second.get()}) ASSERT_TRUE(core->add(i + 1, requests[i]).ok());
  std::vector<TokenEvent> recorded, replayed;
  int64_t planned = 0;
  while (!first->idle()) {
    const StepPlan plan = first->step(recorded);
    for (const PlannedChunk& chunk : plan.chunks) planned += chunk.drafted;
    ASSERT_TRUE(second->replay(StepPlan::parse(plan.to_string()).value(), replayed).ok()) << plan.to_string();
  }
  EXPECT_LT(first->stats().drafted_tokens, planned);
  EXPECT_EQ(first->stats().drafted_tokens, second->stats().drafted_tokens);
  ASSERT_EQ(recorded.size(), replayed.size());
  for (size_t i = 0; i < recorded.size(); ++i) EXPECT_EQ(written(recorded[i]), written(replayed[i]));
}

INSTANTIATE_TEST_SUITE_P(Models, SelfDrafts, ::testing::Values("llama", "gemma3", "qwen3moe", "deepseek2"),
                         [](const auto& one) { return one.param; });

TEST(SelfDraft, AnEvictorDropsWhatItDropsWithoutDrafts) {
  const auto model = load_for(golden_model("llama"), *select_isa());
  ASSERT_TRUE(model);
  for (const char* evictor : {"streamingllm:sinks=2,window=14", "h2o:budget=16,slack=4"}) {
    EngineOptions o = options(2, 64, 4);
    o.evictor = evictor;
    std::vector<Request> requests;
    for (int64_t i = 0; i < 4; ++i) requests.push_back(make_request(i, 9 + 5 * i, 40 - i, model->info().vocab));
    const DraftOutcome plain = run_requests(*make_core(model, o), requests, 1);
    o.drafter = "self:k=3,mlp=1,p=0";
    auto core = make_core(model, o);
    ASSERT_TRUE(core);
    const DraftOutcome drafted = run_requests(*core, requests, 1);
    EXPECT_EQ(drafted.emitted, plain.emitted) << evictor;
    EXPECT_EQ(drafted.stats.evicted_tokens, plain.stats.evicted_tokens) << evictor;
    EXPECT_GT(drafted.stats.drafted_tokens, 0) << evictor;
  }
}

TEST(SelfDraft, Refusals) {
  const auto model = load_for(golden_model("llama"), *select_isa());
  ASSERT_TRUE(model);
  const auto error_of = [](const std::shared_ptr<const LanguageModel>& of, const EngineOptions& o) {
    const auto made = EngineCore::create(of, o);
    return made.ok() ? Error{} : made.error();
  };
  EngineOptions o = options();
  for (const auto& [drafter, message] :
       {std::pair("self:attn=2", "drafter self: attn: layer 2: the model has layers 0 to 1"),
        {"self:mlp=1-0", "drafter self: mlp: expected layers such as 3+7-9, got '1-0'"},
        {"self:mlp=0+", "drafter self: mlp: expected layers such as 3+7-9, got '0+'"},
        {"self:skip=a.json,mlp=0", "drafter self: skip: names a file, which says all; give it or attn and mlp"},
        {"self:skip=/nowhere.json", "drafter self: skip: /nowhere.json: cannot be read, or is empty"}}) {
    o.drafter = drafter;
    EXPECT_EQ(error_of(model, o).message, message);
  }
  o.drafter = "self";
  o.kv_format = "kivi";
  EXPECT_EQ(error_of(model, o).message,
            "drafter self does not go with KV format kivi: it encodes whole blocks, in which a draft's keys cannot be "
            "replaced; use f16 or another format of rows");
}

TEST(SelfDraft, AFileNamesItsModelAndItsBlocks) {
  const auto model = load_for(golden_model("llama"), *select_isa());
  const auto other = load_for(golden_model("llama3"), *select_isa());
  ASSERT_TRUE(model && other);
  const std::string path = fmt::format("{}skips_{}.json", ::testing::TempDir(), ::getpid());
  const SkippedBlocks skipped{{0, 1}, {1, 1}};
  ASSERT_TRUE(write_skips(path, skipped, *model).ok());
  const auto read = choose_skips({"", "", path}, *model);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, skipped);
  const auto refused = choose_skips({"", "", path}, *other);
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(
      refused.error().message.starts_with(fmt::format("drafter self: skip: {}: is of another model than", path)))
      << refused.error().message;
  std::remove(path.c_str());
  EXPECT_EQ(layers_text({1, 0, 1, 1, 1, 0, 1}), "0+2-4+6");
  EXPECT_EQ(*parse_layers("0+2-4+6", 7), (std::vector<uint8_t>{1, 0, 1, 1, 1, 0, 1}));
}

}  // namespace
}  // namespace millrace
