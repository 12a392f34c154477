// Encoders against an independent reference (tests/golden/make_encoders.py), in both file kinds: tokens, hidden states,
// vectors and scores; independence of a text from its batch, the threads and other texts; what encoders refuse.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/ordered_json.h"
#include "evaluate/embedder.h"
#include "evaluate/golden_floats_test.h"
#include "evaluate/scorer.h"
#include "evaluate/vector_head.h"
#include "models/arch.h"
#include "models/ranking_head.h"
#include "prompt/rank_prompt.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const fs::path kEncoders = fs::path(MILLRACE_SOURCE_DIR) / "tests/golden/encoders";

std::vector<std::string> encoder_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kEncoders)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

std::shared_ptr<const LanguageModel> load_encoder(const fs::path& path) {
  auto model = LanguageModel::load(path, {.threads = 1});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return model.ok() ? *model : nullptr;
}

using Texts = std::vector<std::vector<TokenId>>;

std::vector<std::vector<float>> encode(const std::shared_ptr<const LanguageModel>& model, const Texts& texts,
                                       Pooling pooling, int64_t batch = 512, int threads = 1) {
  auto embedder = Embedder::create(model, {.threads = threads, .context = 48, .batch_tokens = batch});
  EXPECT_TRUE(embedder.ok()) << (embedder.ok() ? "" : embedder.error().message);
  std::vector<std::vector<float>> out;
  const auto done = (*embedder)->run(texts, pooling, [&](size_t text, std::vector<float> values) -> Result<void> {
    EXPECT_EQ(text, out.size());
    out.push_back(std::move(values));
    return {};
  });
  EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message);
  return out;
}

// What one golden folder says.
struct Reference {
  Json json;
  Texts tokens;

  explicit Reference(const fs::path& folder)
      : json(Json::parse(std::ifstream(folder / "encoded.json"))), tokens(json["tokens"].get<Texts>()) {}

  bool ranks() const { return json["pooling"] == "rank"; }
  std::vector<float> hidden(size_t text) const { return floats_of(json["hidden"][text].get<std::string>()); }

  void check_tokens(const LanguageModel& model) const {
    const auto prompt = RankPrompt::create(model);
    ASSERT_TRUE(prompt.ok()) << prompt.error().message;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto text = json["texts"][i].get<std::string>();
      const auto got = ranks() ? prompt->tokens(json["query"].get<std::string>(), text) : model.encode(text);
      ASSERT_TRUE(got.ok()) << got.error().message;
      EXPECT_EQ(*got, tokens[i]) << i;
    }
    for (const Json& one : json.value("tokenized", Json::array())) {
      const auto got = model.encode(one[0].get<std::string>());
      ASSERT_TRUE(got.ok()) << got.error().message;
      EXPECT_EQ(*got, one[1].get<std::vector<TokenId>>()) << one[0];
    }
  }

  void check_scores(const std::shared_ptr<const LanguageModel>& model) const {
    const auto head = RankingHead::read(*model->parts().files, model->parts().model->spec());
    ASSERT_TRUE(head.ok() && *head) << (head.ok() ? "no head" : head.error().message);
    const bool mean = (*head)->row() == RankingHead::Row::mean;
    const auto rows = encode(model, tokens, mean ? Pooling::mean : Pooling::cls);
    for (size_t i = 0; i < rows.size(); ++i)
      EXPECT_NEAR((*head)->score(rows[i], false), json["scores"][i].get<double>(), 5e-4) << i;
  }

  void check_vectors(const LanguageModel& model, std::vector<std::vector<float>> vectors) const {
    const auto head = VectorHead::read(*model.parts().files, json["width"].get<int64_t>());
    ASSERT_TRUE(head.ok()) << head.error().message;
    std::vector<float> all;
    for (auto& vector : vectors) {
      head->apply(vector);
      normalize(vector);
      all.insert(all.end(), vector.begin(), vector.end());
    }
    EXPECT_LT(error_of(all, floats_of(json["vectors"].get<std::string>())), 1e-4);
  }
};

class Encoder : public ::testing::TestWithParam<std::string> {};

TEST_P(Encoder, BothFileKindsMatchTheReference) {
  const fs::path folder = kEncoders / GetParam();
  const Reference reference(folder);
  for (const fs::path& path : {folder, folder / "model.gguf"}) {
    SCOPED_TRACE(path.string());
    const auto model = load_encoder(path);
    ASSERT_TRUE(model);
    reference.check_tokens(*model);
    const auto hidden = encode(model, reference.tokens, Pooling::none);
    ASSERT_EQ(hidden.size(), reference.tokens.size());
    for (size_t i = 0; i < hidden.size(); ++i) EXPECT_LT(error_of(hidden[i], reference.hidden(i)), 1e-4) << i;
    const auto pooling = model_pooling(*model->parts().files);
    ASSERT_TRUE(pooling.ok());
    if (reference.ranks())
      reference.check_scores(model);
    else
      reference.check_vectors(*model, encode(model, reference.tokens, *pooling));
  }
}

TEST_P(Encoder, TextsDoNotDependOnTheirBatchOrThreads) {
  const Reference reference(kEncoders / GetParam());
  const auto model = load_encoder(kEncoders / GetParam() / "model.gguf");
  ASSERT_TRUE(model);
  for (const Pooling pooling : {Pooling::none, Pooling::cls, Pooling::last, Pooling::mean}) {
    std::vector<std::vector<float>> alone;
    for (const auto& text : reference.tokens) alone.push_back(encode(model, {text}, pooling).at(0));
    EXPECT_EQ(encode(model, reference.tokens, pooling), alone);
    EXPECT_EQ(encode(model, reference.tokens, pooling, /*batch=*/1, /*threads=*/3), alone);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Encoder, ::testing::ValuesIn(encoder_names()),
                         [](const auto& test) { return test.param; });

TEST(Encoders, PredictNoTokens) {
  const auto model = load_encoder(kEncoders / "bert");
  ASSERT_TRUE(model);
  const auto scorer = Scorer::create(model, {.threads = 1, .context = 32, .batch_tokens = 32});
  ASSERT_FALSE(scorer.ok());
  EXPECT_EQ(scorer.error().kind, ErrorKind::unsupported);
  EXPECT_NE(scorer.error().message.find("this model is an encoder (bert)"), std::string::npos);
}

// Copies a file; the copy's row of type 1 is that of type 0.
fs::path with_one_type(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const auto files = open_model_files(path.string());
  EXPECT_TRUE(files.ok());
  const StoredTensor* types = files.ok() ? files->find("token_types.weight") : nullptr;
  EXPECT_TRUE(types && types->tensor.rows() == 2);
  if (!types) return {};
  const auto row = static_cast<size_t>(types->tensor.bytes / 2), at = static_cast<size_t>(types->offset);
  bytes.replace(at + row, row, bytes.substr(at, row));
  const fs::path copy = fs::path(::testing::TempDir()) / "encoder_with_one_type.gguf";
  std::ofstream(copy, std::ios::binary) << bytes;
  return copy;
}

// The second text of a pair has type 1; a single text has type 0 only, and so has a model without a separator.
TEST(Encoders, TypesFollowTheSeparator) {
  const auto model = load_encoder(kEncoders / "bert" / "model.gguf");
  ASSERT_TRUE(model);
  EXPECT_EQ(model->parts().model->spec().token_types, 2);
  const TokenId separator = *model->parts().tokenizer->spec().sep;
  const auto one_type = load_encoder(with_one_type(kEncoders / "bert" / "model.gguf"));
  ASSERT_TRUE(one_type);
  const std::vector<std::vector<TokenId>> texts = {{5, separator, 6, 7}, {5, 8, 6, 7}};
  const auto rows = encode(model, texts, Pooling::none), same = encode(one_type, texts, Pooling::none);
  EXPECT_NE(rows[0], same[0]);
  EXPECT_EQ(rows[1], same[1]);
}

// A field of a mixture of experts that would change a result.
TEST(Encoders, ExpertsThatSelectTheirTokensAreRefused) {
  auto files = open_model_files((kEncoders / "nomic_bert_moe").string());
  ASSERT_TRUE(files.ok());
  EXPECT_EQ(find_arch(*files)->name, "nomic-bert-moe");
  Json config = *files->config;
  config["expert_choice_router"] = true;
  files->config = std::make_shared<const Json>(config);
  files->path = "m";
  const auto spec = read_arch_spec(*files);
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.error().message, "m/config.json: expert_choice_router in a nomic_bert");
  config["moe_every_n_layers"] = 0;
  files->config = std::make_shared<const Json>(config);
  EXPECT_EQ(find_arch(*files)->name, "nomic-bert");
}

TEST(Encoders, AnUnknownPositionEmbeddingIsRefused) {
  auto files = open_model_files((kEncoders / "bert").string());
  ASSERT_TRUE(files.ok());
  Json config = *files->config;
  config["position_embedding_type"] = "relative_key";
  files->config = std::make_shared<const Json>(config);
  files->path = "m";
  const auto spec = read_arch_spec(*files);
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.error().message, "m/config.json: position_embedding_type 'relative_key'");
}

}  // namespace
}  // namespace millrace
