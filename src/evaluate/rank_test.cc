// Rerankers against an independent reference: tokens of the pairs, scores of the heads, independence of pairs, and
// truncated documents.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/ordered_json.h"
#include "evaluate/embedder.h"
#include "models/ranking_head.h"
#include "prompt/rank_prompt.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const fs::path kRerankers = fs::path(MILLRACE_SOURCE_DIR) / "tests/golden/reranker";

std::shared_ptr<const LanguageModel> load_ranker(const std::string& name) {
  auto model = LanguageModel::load(kRerankers / name, {.threads = 1});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return model.ok() ? *model : nullptr;
}

const Json& reference() {
  static const Json json = Json::parse(std::ifstream(kRerankers / "ranking.json"));
  return json;
}

std::optional<RankingHead> head_of(const LanguageModel& model) {
  auto head = RankingHead::read(*model.parts().files, model.parts().model->spec());
  EXPECT_TRUE(head.ok()) << (head.ok() ? "" : head.error().message);
  return head.ok() ? *head : std::nullopt;
}

std::vector<double> scores(const std::shared_ptr<const LanguageModel>& model,
                           const std::vector<std::vector<TokenId>>& pairs, int64_t batch_tokens,
                           const RankingHead& head, bool activated = false) {
  auto embedder = Embedder::create(model, {.threads = 1,
                                           .context = std::min<int64_t>(512, model->info().context),
                                           .batch_tokens = batch_tokens,
                                           .kv_format = "f32"});
  EXPECT_TRUE(embedder.ok()) << (embedder.ok() ? "" : embedder.error().message);
  std::vector<double> out;
  const auto done = (*embedder)->run(pairs, Pooling::last, [&](size_t, std::vector<float> hidden) -> Result<void> {
    out.push_back(head.score(hidden, activated));
    return {};
  });
  EXPECT_TRUE(done.ok());
  return out;
}

class Reranker : public ::testing::TestWithParam<const char*> {};

TEST_P(Reranker, MatchesReferenceTokensAndScores) {
  const auto model = load_ranker(GetParam());
  ASSERT_TRUE(model);
  const auto head = head_of(*model);
  ASSERT_TRUE(head);
  EXPECT_EQ(head->relevant(), 0u);
  const Json& expected = reference()["cases"][GetParam()];
  const auto prompt = RankPrompt::create(*model);
  ASSERT_TRUE(prompt.ok()) << prompt.error().message;
  std::vector<std::vector<TokenId>> pairs;
  for (size_t i = 0; i < reference()["documents"].size(); ++i) {
    const auto tokens =
        prompt->tokens(reference()["query"].get<std::string>(), reference()["documents"][i].get<std::string>());
    ASSERT_TRUE(tokens.ok()) << tokens.error().message;
    EXPECT_EQ(*tokens, expected["tokens"][i].get<std::vector<TokenId>>());
    pairs.push_back(*tokens);
  }
  const auto together = scores(model, pairs, 512, *head), in_pieces = scores(model, pairs, 7, *head),
             activated = scores(model, pairs, 512, *head, true);
  for (size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_NEAR(together[i], expected["scores"][i].get<double>(), 1e-4 * 5) << i;
    EXPECT_EQ(together[i], in_pieces[i]) << i;
    EXPECT_EQ(together[i], scores(model, {pairs[i]}, 512, *head)[0]) << i;
    const bool labels = head->labels().size() > 1;
    EXPECT_NEAR(activated[i], labels ? together[i] : 1 / (1 + std::exp(-together[i])), 1e-12) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Reranker, ::testing::Values("yes_no.gguf", "dense.gguf", "folder"));

TEST(RankingHead, WithoutAYesLabelRelevanceIsUndefined) {
  const auto model = load_ranker("labels.gguf");
  ASSERT_TRUE(model);
  const auto head = head_of(*model);
  ASSERT_TRUE(head);
  EXPECT_EQ(head->labels(), (std::vector<std::string>{"good", "bad"}));
  EXPECT_FALSE(head->relevant());
}

TEST(RankingHead, IsAbsentFromOtherModels) {
  const auto model =
      LanguageModel::load(fs::path(MILLRACE_SOURCE_DIR) / "tests/golden/qwen3/model.gguf", {.threads = 1});
  ASSERT_TRUE(model.ok());
  EXPECT_FALSE(head_of(**model));
}

// A reranker without a head, in both file kinds, by its recipe: the prompt, and the softmax of two tokens' logits.
TEST(RankRecipe, MatchesReferenceTokensAndScores) {
  const fs::path folder = kRerankers / "tokens";
  const Json expected = Json::parse(std::ifstream(folder / "ranking.json"));
  const RankRecipe* recipe = find_rank_recipe("qwen3");
  ASSERT_TRUE(recipe);
  for (const char* file : {"", "model.gguf"}) {
    SCOPED_TRACE(file);
    const auto model = load_ranker((fs::path("tokens") / file).string());
    ASSERT_TRUE(model);
    const auto prompt = RankPrompt::create(*model, recipe);
    ASSERT_TRUE(prompt.ok()) << prompt.error().message;
    const auto query = expected["query"].get<std::string>();
    std::vector<std::vector<TokenId>> pairs;
    for (const Json& document : expected["documents"]) {
      const auto tokens = prompt->tokens(query, document.get<std::string>());
      ASSERT_TRUE(tokens.ok()) << tokens.error().message;
      EXPECT_EQ(*tokens, expected["tokens"][pairs.size()].get<std::vector<TokenId>>());
      pairs.push_back(*tokens);
    }
    const auto own = RankPrompt::create(*model, recipe, expected["instruction"].get<std::string>());
    ASSERT_TRUE(own.ok()) << own.error().message;
    const auto asked = own->tokens(query, expected["documents"][0].get<std::string>());
    ASSERT_TRUE(asked.ok()) << asked.error().message;
    EXPECT_EQ(*asked, expected["own_tokens"].get<std::vector<TokenId>>());
    const auto yes = model->encode(recipe->relevant, false), no = model->encode(recipe->other, false);
    ASSERT_TRUE(yes.ok() && no.ok() && yes->size() == 1 && no->size() == 1);
    const auto head =
        RankingHead::of_tokens(*model->parts().files, model->parts().model->spec(), yes->front(), no->front());
    ASSERT_TRUE(head.ok()) << head.error().message;
    const auto together = scores(model, pairs, 2048, *head);
    for (size_t i = 0; i < pairs.size(); ++i) {
      EXPECT_NEAR(together[i], expected["scores"][i].get<double>(), 1e-4) << i;
      EXPECT_EQ(together[i], scores(model, {pairs[i]}, 7, *head)[0]) << i;
    }
  }
}

TEST(RankRecipe, IsRefusedByEncodersAndInstructionsWithoutAPlace) {
  const auto encoder =
      LanguageModel::load(fs::path(MILLRACE_SOURCE_DIR) / "tests/golden/encoders/bert", {.threads = 1});
  ASSERT_TRUE(encoder.ok());
  const auto& parts = (*encoder)->parts();
  const auto head = RankingHead::of_tokens(*parts.files, parts.model->spec(), 1, 2);
  ASSERT_FALSE(head.ok());
  EXPECT_EQ(head.error().kind, ErrorKind::unsupported);
  const auto decoder = load_ranker("yes_no.gguf");
  const auto& files = *decoder->parts().files;
  const auto vocab = static_cast<int32_t>(decoder->info().vocab);
  for (const int32_t token : {-1, vocab})
    EXPECT_FALSE(RankingHead::of_tokens(files, decoder->parts().model->spec(), token, 1).ok()) << token;
  EXPECT_TRUE(RankingHead::of_tokens(files, decoder->parts().model->spec(), vocab - 1, 1).ok());
  const auto prompt = RankPrompt::create(*load_ranker("yes_no.gguf"), nullptr, "Find it.");
  ASSERT_FALSE(prompt.ok());
  EXPECT_EQ(prompt.error().kind, ErrorKind::user);
}

TEST(RankPrompt, TruncatesOnlyTheDocument) {
  const auto model = load_ranker("yes_no.gguf");
  const auto prompt = RankPrompt::create(*model);
  ASSERT_TRUE(prompt.ok());
  const std::string query = "the hand", document = "It is in the other hand, and so on, and on.";
  const auto whole = prompt->tokens(query, document), without = prompt->tokens(query, "");
  ASSERT_TRUE(whole.ok() && without.ok());
  const auto size = static_cast<int64_t>(whole->size()), least = static_cast<int64_t>(without->size());
  for (int64_t most = least; most <= size; ++most) {
    const auto cut = prompt->cut(query, document, most, 1000);
    ASSERT_TRUE(cut.ok()) << cut.error().message;
    EXPECT_LE(static_cast<int64_t>(cut->tokens.size()), most);
    EXPECT_EQ(cut->shortened, most < size);
    EXPECT_EQ(cut->tokens.back(), whole->back());  // text after the document is retained
  }
  EXPECT_FALSE(prompt->cut(query, document, least - 1, 1000).ok());
  const auto few = prompt->cut(query, document, 1000, 3);
  ASSERT_TRUE(few.ok());
  EXPECT_TRUE(few->shortened);
  EXPECT_EQ(static_cast<int64_t>(few->tokens.size()), least + 3);
}

// A folder whose template is Jinja over messages.
TEST(RankPrompt, AcceptsAJinjaTemplate) {
  const fs::path folder = fs::temp_directory_path() / ("millrace_rank_" + std::to_string(getpid()));
  fs::remove_all(folder);
  fs::copy(kRerankers / "folder", folder);
  fs::create_directory(folder / "additional_chat_templates");
  std::ofstream(folder / "additional_chat_templates" / "rerank.jinja")
      << "{{ messages[0]['content'] }}<|eos|>{{ messages[1].content }}|{{ query }}";
  auto model = LanguageModel::load(folder, {.threads = 1});
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto prompt = RankPrompt::create(**model);
  ASSERT_TRUE(prompt.ok()) << prompt.error().message;
  const auto tokens = prompt->tokens("the {document}", "and");
  ASSERT_TRUE(tokens.ok()) << tokens.error().message;
  EXPECT_EQ((*model)->decode(*tokens, /*skip_special=*/false), "the {document}<|eos|>and|the {document}");
  fs::remove_all(folder);
}

}  // namespace
}  // namespace millrace
