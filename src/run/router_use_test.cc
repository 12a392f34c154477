// LoadOptions::router on a whole model: the same bits as a model that was stored with one expert per token, in any
// batch.
#include "models/model_runner.h"
#include "models/router.h"
#include "run/edited_model_test.h"
#include "test_paths.h"

namespace millrace {
namespace {

// The logits after each of `texts`, which run as streams of one batch.
std::vector<std::vector<float>> logits_after(const LanguageModel& model,
                                             const std::vector<std::vector<TokenId>>& texts) {
  const auto& parts = model.parts();
  auto made = ModelRunner::create(*parts.model, parts.kernels,
                                  {.threads = std::make_shared<ThreadPool>(2),
                                   .layout = {find_format("f32"), 16, parts.model->kv_layers()},
                                   .blocks = 8,
                                   .limits = {64, 8, 64}});
  EXPECT_TRUE(made.ok());
  ModelRunner& runner = **made;
  runner.start();
  std::vector<BlockId> blocks(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    blocks[i] = *runner.kv().allocate();
    runner.begin({&blocks[i], 1}, 0);
    for (size_t t = 0; t < texts[i].size(); ++t)
      runner.add(texts[i][t], static_cast<int64_t>(t), t + 1 == texts[i].size());
  }
  runner.forward();
  std::vector<std::vector<float>> out;
  for (size_t i = 0; i < texts.size(); ++i) {
    const float* row = runner.logits(static_cast<int64_t>(i));
    out.emplace_back(row, row + parts.model->spec().vocab);
  }
  return out;
}

const std::vector<std::vector<TokenId>> kTexts = {{5, 17, 60, 2}, {33}, {9, 9, 41, 7, 12}};

TEST(RouterUse, SwitchIsOneExpertWithItsProbability) {
  const testing::EditedModel own(MILLRACE_SOURCE_DIR, "router_own", "qwen2moe");
  const testing::EditedModel one(MILLRACE_SOURCE_DIR, "router_one", "qwen2moe");
  one.edit("config.json", [](nlohmann::ordered_json& config) {
    config["num_experts_per_tok"] = 1;
    config["norm_topk_prob"] = false;
  });
  const auto plain = own.load(), switched = own.load({.router = "switch"}), stored = one.load();
  EXPECT_EQ(switched->parts().model->spec().moe.used, 1);
  EXPECT_EQ(logits_after(*switched, kTexts), logits_after(*stored, kTexts));
  EXPECT_NE(logits_after(*switched, kTexts), logits_after(*plain, kTexts));
}

TEST(RouterUse, SameBitsInAnyBatch) {
  const testing::EditedModel own(MILLRACE_SOURCE_DIR, "router_batch", "mixtral");
  const auto model = own.load({.router = "switch"});
  const auto together = logits_after(*model, kTexts);
  for (size_t i = 0; i < kTexts.size(); ++i) EXPECT_EQ(logits_after(*model, {kTexts[i]})[0], together[i]) << i;
}

TEST(RouterUse, NeedsAMixtureOfExperts) {
  const std::string dense = std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama";
  const auto refused = LanguageModel::load(dense, {.threads = 1, .router = "switch"});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(refused.error().message, "router switch: " + dense + " has no mixture of experts");
  EXPECT_EQ(LanguageModel::load(dense, {.threads = 1, .router = "dice"}).error().message,
            "router: unknown 'dice'; available: " + routers().names());
}

}  // namespace
}  // namespace millrace
