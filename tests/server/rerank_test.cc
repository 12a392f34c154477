// Ranking over HTTP: the golden rerankers' scores in every dialect's format, cosines for embedding models, and refused
// requests.
#include <cmath>
#include <filesystem>
#include <fstream>

#include "server/live_server.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

const fs::path kRankGolden = fs::path(MILLRACE_SOURCE_DIR) / "tests/golden";

std::shared_ptr<const LanguageModel> load(const fs::path& path) {
  auto model = LanguageModel::load(kRankGolden / path, {.threads = 1});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return model.ok() ? *model : nullptr;
}

struct RankServer : LiveServer {
  explicit RankServer(const fs::path& model, ServiceOptions options = {})
      : LiveServer(std::move(options), {}, {.kv_format = "f32"}, nullptr, load(model)) {}
};

const Json& reference() {
  static const Json json = Json::parse(std::ifstream(kRankGolden / "reranker/ranking.json"));
  return json;
}

Json question() { return {{"query", reference()["query"]}, {"documents", reference()["documents"]}}; }

Json with(Json json, const char* key, const Json& value) {
  json[key] = value;
  return json;
}

// By index, and that the order is falling.
std::vector<double> scores_of(const Json& results, const char* name = "relevance_score") {
  std::vector<double> out(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    out.at(results[i]["index"].get<size_t>()) = results[i][name];
    if (i == 0) continue;
    EXPECT_GE(results[i - 1][name].get<double>(), results[i][name].get<double>());
  }
  return out;
}

void expect_scores(const std::vector<double>& got, const char* name, bool sigmoid) {
  const Json& expected = reference()["cases"][name]["scores"];
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double want = expected[i];
    EXPECT_NEAR(got[i], sigmoid ? 1 / (1 + std::exp(-want)) : want, 5e-4) << i;
  }
}

TEST(Rerank, EveryDialectHasTheSameScores) {
  const struct {
    const char* name;
    bool labels;
  } models[] = {{"yes_no.gguf", true}, {"dense.gguf", false}, {"folder", false}};
  for (const auto& model : models) {
    RankServer live(fs::path("reranker") / model.name);
    std::vector<double> raw;
    for (const char* path : {"/rerank", "/reranking", "/v1/rerank", "/v1/reranking"}) {
      const Response answer = post(live.port(), path, question().dump());
      ASSERT_EQ(answer.status, 200) << answer.body;
      const Json json = answer.json();
      raw = scores_of(json["results"]);
      expect_scores(raw, model.name, false);
      EXPECT_EQ(json["object"], "list");
      EXPECT_EQ(json["model"], "stories");
      EXPECT_EQ(json.value("scored_by", ""), "ranking_head") << json;
      EXPECT_FALSE(json["results"][0].contains("document"));
      EXPECT_FALSE(json.contains("truncated"));
    }
    const Json vllm = post(live.port(), "/v2/rerank", question().dump()).json();
    ASSERT_TRUE(vllm.contains("results")) << vllm;
    expect_scores(scores_of(vllm["results"]), model.name, !model.labels);
    EXPECT_EQ(vllm["results"][0]["document"]["text"],
              reference()["documents"][vllm["results"][0]["index"].get<size_t>()]);
    int64_t tokens = 0;
    for (const Json& pair : reference()["cases"][model.name]["tokens"]) tokens += static_cast<int64_t>(pair.size());
    EXPECT_EQ(vllm["usage"]["total_tokens"], tokens);
    EXPECT_EQ(vllm["usage"]["prompt_tokens"], tokens);

    const Json score =
        post(live.port(), "/score", Json{{"text_1", reference()["query"]}, {"text_2", reference()["documents"]}}.dump())
            .json();
    ASSERT_TRUE(score.contains("data")) << score;
    ASSERT_EQ(score["data"].size(), raw.size()) << score;
    for (size_t i = 0; i < raw.size(); ++i) EXPECT_EQ(score["data"][i]["score"], scores_of(vllm["results"])[i]);
    ASSERT_EQ(score.value("scored_by", ""), "ranking_head") << score;
    const Json activated = post(live.port(), "/rerank", with(question(), "use_activation", true).dump()).json();
    EXPECT_EQ(scores_of(activated["results"]), scores_of(vllm["results"]));
    // Alone as among others, to the last bit.
    for (size_t i = 0; i < raw.size(); ++i) {
      const Json alone =
          post(live.port(), "/rerank", with(question(), "documents", Json::array({reference()["documents"][i]})).dump())
              .json();
      ASSERT_TRUE(alone.contains("results")) << alone;
      EXPECT_EQ(alone["results"][0]["relevance_score"].get<double>(), raw[i]) << i;
    }
  }
}

TEST(Rerank, TopNAndTheirTexts) {
  RankServer live("reranker/yes_no.gguf");
  const Json all = post(live.port(), "/rerank", question().dump()).json();
  const Json two =
      post(live.port(), "/rerank", with(with(question(), "top_n", 2), "return_documents", true).dump()).json();
  ASSERT_EQ(two["results"].size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(two["results"][i]["index"], all["results"][i]["index"]);
    EXPECT_EQ(two["results"][i]["document"]["text"],
              reference()["documents"][all["results"][i]["index"].get<size_t>()]);
  }
  EXPECT_EQ(post(live.port(), "/rerank", with(question(), "top_n", 100).dump()).json()["results"].size(),
            reference()["documents"].size());
  Json objects = Json::array();
  for (const Json& text : reference()["documents"]) objects.push_back({{"text", text}, {"id", 7}});
  EXPECT_EQ(post(live.port(), "/rerank", with(question(), "documents", objects).dump()).json()["results"],
            all["results"]);
  // TEI's form.
  const Json list =
      post(live.port(), "/rerank",
           Json{{"query", reference()["query"]}, {"texts", reference()["documents"]}, {"return_text", true}}.dump())
          .json();
  ASSERT_TRUE(list.is_array()) << list;
  EXPECT_EQ(scores_of(list, "score"), scores_of(all["results"]));
  EXPECT_EQ(list[0]["text"], reference()["documents"][list[0]["index"].get<size_t>()]);
}

TEST(Rerank, LongPairsAreRefusedOrCutAsRequested) {
  RankServer live("reranker/yes_no.gguf");
  std::string longer;
  for (int i = 0; i < 200; ++i) longer += " and so on";
  const Json body = {{"query", "the hand"}, {"documents", {"short", longer}}};
  const Response refused = post(live.port(), "/rerank", body.dump());
  EXPECT_EQ(refused.status, 400) << refused.body;
  EXPECT_EQ(refused.json()["error"]["type"], "exceed_context_size_error");
  EXPECT_EQ(refused.json()["error"]["param"], "documents");
  EXPECT_GT(refused.json()["error"]["n_prompt_tokens"].get<int64_t>(), live.engine().context());
  EXPECT_EQ(refused.json()["error"]["n_ctx"], live.engine().context());
  EXPECT_EQ(post(live.port(), "/v2/rerank", body.dump()).json()["error"]["code"], "context_length_exceeded");
  for (const auto& [field, value] :
       {std::pair("truncate_prompt_tokens", -1), {"truncate_prompt_tokens", 100}, {"max_tokens_per_doc", 10}}) {
    const Json cut = post(live.port(), "/rerank", with(body, field, value).dump()).json();
    ASSERT_TRUE(cut.contains("results")) << field << cut;
    EXPECT_EQ(cut["truncated"], Json::array({1})) << field;
    EXPECT_LE(cut["usage"]["total_tokens"].get<int64_t>(), 2 * live.engine().context());
  }
  // A document that fits is not reported, and documents are cut at the end.
  const Json fits = post(live.port(), "/rerank",
                         with(with(body, "documents", Json::array({"short"})), "truncate_prompt_tokens", -1).dump())
                        .json();
  EXPECT_FALSE(fits.contains("truncated"));
  EXPECT_EQ(post(live.port(), "/rerank", with(body, "truncate_prompt_tokens", 5).dump()).status, 400);
  const Response too_many =
      post(live.port(), "/rerank", with(question(), "documents", std::vector<std::string>(3000, "a")).dump());
  EXPECT_EQ(too_many.status, 400);
  EXPECT_EQ(too_many.json()["error"]["param"], "documents");
}

TEST(Rerank, WrongFieldsAreNamed) {
  RankServer live("reranker/dense.gguf");
  const std::pair<const char*, const char*> cases[] = {
      {R"({"documents": ["b"]})", "query"},
      {R"({"query": 1, "documents": ["b"]})", "query"},
      {R"({"query": "a"})", "documents"},
      {R"({"query": "a", "documents": []})", "documents"},
      {R"({"query": "a", "documents": "b"})", "documents"},
      {R"({"query": "a", "documents": ["b", 1]})", "documents"},
      {R"({"query": "a", "documents": [{"title": "b"}]})", "documents"},
      {R"({"query": "a", "documents": ["b"], "texts": ["b"]})", "documents"},
      {R"({"query": "a", "documents": ["b"], "top_n": -1})", "top_n"},
      {R"({"query": "a", "documents": ["b"], "top_n": "2"})", "top_n"},
      {R"({"query": "a", "documents": ["b"], "truncate_prompt_tokens": -2})", "truncate_prompt_tokens"},
      {R"({"query": "a", "documents": ["b"], "max_tokens_per_doc": 0})", "max_tokens_per_doc"},
      {R"({"query": "a", "documents": ["b"], "return_documents": "yes"})", "return_documents"}};
  for (const auto& [body, param] : cases) {
    for (const char* path : {"/rerank", "/v2/rerank"}) {
      const Response answer = post(live.port(), path, body);
      EXPECT_EQ(answer.status, 400) << body << answer.body;
      EXPECT_EQ(answer.json()["error"]["param"], param) << answer.body;
    }
  }
  const Response tokens = post(live.port(), "/score", R"({"text_1": [1, 2], "text_2": ["a"]})");
  EXPECT_EQ(tokens.status, 400);
  EXPECT_EQ(tokens.json()["error"]["param"], "text_1");
}

TEST(Rerank, OtherModelsAreRefusedOrRankByCosine) {
  const std::string body = R"({"query": "One day", "documents": ["The cat sat.", "One day", "One day, Tom"]})";
  LiveServer plain;
  for (const char* path : {"/rerank", "/reranking", "/v1/rerank", "/v1/reranking", "/v2/rerank"})
    EXPECT_EQ(post(plain.port(), path, body).status, 400) << path;
  RankServer labels("reranker/labels.gguf");
  const Response refused = post(labels.port(), "/rerank", R"({"query": "a", "documents": ["b"]})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("good, bad"), std::string::npos) << refused.body;

  ServiceOptions options;
  options.pooling = Pooling::mean;
  LiveServer embedding(options);
  const Json json = post(embedding.port(), "/rerank", body).json();
  EXPECT_EQ(json["scored_by"], "cosine") << json;
  EXPECT_EQ(json["results"][0]["index"], 1);
  EXPECT_NEAR(json["results"][0]["relevance_score"].get<double>(), 1, 1e-5);
  const Json score = post(embedding.port(), "/score",
                          R"({"text_1": "One day", "text_2": ["The cat sat.", "One day", "One day, Tom"]})")
                         .json();
  for (const Json& one : json["results"])
    EXPECT_EQ(one["relevance_score"], score["data"][one["index"].get<size_t>()]["score"]);
  const Json cut =
      post(embedding.port(), "/rerank",
           R"({"query": "One day", "documents": ["One day, Tom went to the park", "a"], "max_tokens_per_doc": 2})")
          .json();
  EXPECT_EQ(cut["truncated"], Json::array({0})) << cut;
}

TEST(Rerank, IsCountedAndCharged) {
  ServiceOptions options;
  const auto keys = parse_api_keys(R"({"keys": [{"name": "few", "key": "sesame", "requests_per_minute": 1}]})", "keys");
  ASSERT_TRUE(keys.ok()) << keys.error().message;
  options.keys = *keys;
  RankServer live("reranker/dense.gguf", options);
  const std::string headers = "Authorization: Bearer sesame\r\n";
  EXPECT_EQ(post(live.port(), "/rerank", question().dump(), headers).status, 200);
  EXPECT_EQ(post(live.port(), "/rerank", question().dump(), headers).status, 429);
  const std::string metrics = live.server->service().metrics_text();
  EXPECT_NE(metrics.find("/rerank"), std::string::npos) << metrics;
}

}  // namespace
}  // namespace millrace
