// The model's first layers draft, and a step continues behind them: answers are those of plain decoding, and drafted
// tokens run the first layers once.
#include "model_runner.h"
#include "properties/draft_runs.h"

namespace millrace {
namespace {

using namespace testing;

std::string layerskip_model(const std::string& name) {
  const std::string golden = std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/";
  return name == "target" ? golden + "draft_heads/target" : golden + name + "/model.gguf";
}

class LayerskipDrafts : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(model_); }
  std::shared_ptr<const LanguageModel> model_ = load_for(layerskip_model(GetParam()), *select_isa());
};

TEST_P(LayerskipDrafts, EventsAreThoseOfPlainDecoding) {
  const int64_t layers = model_->parts().model->spec().layer_count();
  int64_t accepted = 0, preempted = 0;
  const auto requests = mixed_requests(3, model_->info().vocab);
  for (const auto& [name, o] : settings()) {
    const DraftOutcome plain = run_requests(*make_core(model_, o), requests, 1);
    for (const std::string& drafter :
         {std::string("layerskip:exit=1,k=4,p=0"), fmt::format("layerskip:exit={},k=3,p=0.05", layers - 1)}) {
      SCOPED_TRACE(fmt::format("{}, {}", name, drafter));
      EngineOptions drafting = o;
      drafting.drafter = drafter;
      drafting.threads = 3;
      const DraftOutcome drafted = run_requests(*make_core(model_, drafting), requests, 1);
      EXPECT_EQ(drafted.emitted, plain.emitted);
      EXPECT_GT(drafted.stats.drafted_tokens, 0);
      accepted += drafted.stats.accepted_tokens;
      preempted += drafted.stats.preemptions;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(accepted, 5);
  EXPECT_GT(preempted, 5);
}

INSTANTIATE_TEST_SUITE_P(Models, LayerskipDrafts, ::testing::Values("llama", "gemma3", "qwen3moe", "target"),
                         [](const auto& one) { return one.param; });

// Rows that each layer runs.
struct LayerRows final : ForwardObserver {
  std::map<int64_t, int64_t> rows;
  void middle(int64_t layer, const float* /*rows*/, int64_t tokens, int64_t /*width*/) override {
    rows[layer] += tokens;
  }
};

TEST(LayerskipDraft, KnownRowsRunTheOtherLayersOnly) {
  auto made = TestRunner::load(layerskip_model("target"), {.context = 128, .max_tokens = 64});
  ASSERT_TRUE(made.ok()) << made.error().message;
  ModelRunner& runner = (*made)->runner();
  const auto& blocks = (*made)->blocks();
  const int64_t layers = runner.model().spec().layer_count(), vocab = runner.model().spec().vocab;
  const int64_t width = runner.model().spec().width, first = layers / 2;
  const std::vector<TokenId> tokens = make_request(3, 12, 1, vocab).prompt;
  const auto fill = [&] {
    runner.start();
    runner.begin(std::span(blocks).first(4), 0);
    for (size_t i = 0; i < tokens.size(); ++i) runner.add(tokens[i], static_cast<int64_t>(i), i > 5);
  };
  fill();
  runner.forward();
  const std::vector<float> plain(runner.logits(), runner.logits(6));
  const ThreadPool::Turn turn(runner.threads());
  fill();
  runner.forward_first(first, turn);
  const std::vector<float> behind(runner.residual().begin(), runner.residual().end());
  for (const size_t unknown : {size_t{0}, size_t{1}, size_t{5}, tokens.size()}) {  // the last ones
    fill();
    std::vector<const float*> known;
    for (size_t t = 0; t < tokens.size(); ++t)
      known.push_back(t + unknown < tokens.size() ? behind.data() + static_cast<int64_t>(t) * width : nullptr);
    LayerRows count;
    runner.hooks().add(count);
    runner.forward_known(first, known, turn);
    runner.hooks().remove(count);
    EXPECT_EQ(std::vector<float>(runner.logits(), runner.logits(6)), plain) << unknown;
    EXPECT_EQ(count.rows[0], static_cast<int64_t>(unknown));
    EXPECT_EQ(count.rows[first], std::ssize(tokens));
    EXPECT_EQ(count.rows[layers - 1], 6);
  }
}

TEST(LayerskipDraft, Refusals) {
  const auto model = load_for(layerskip_model("llama"), *select_isa());
  ASSERT_TRUE(model);
  EngineOptions o = options();
  o.drafter = "layerskip:exit=2";
  const auto refused = EngineCore::create(model, o);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "drafter layerskip: exit: must be less than the model's 2 layers, is 2");
  o.drafter = "layerskip:exit=1";
  o.kernels = {"exit=layers:n=1"};
  EXPECT_FALSE(EngineCore::create(model, o).ok());
}

}  // namespace
}  // namespace millrace
