// Embeddings over HTTP in every dialect: the same vectors, alone and in a list; errors by field.
#include <cmath>
#include <cstring>

#include "server/live_server.h"

namespace millrace {
namespace {

using Vector = std::vector<float>;

Vector openai(int port, const Json& body, size_t index = 0) {
  const Json json = post(port, "/v1/embeddings", body.dump()).json();
  EXPECT_TRUE(json.contains("data")) << json;
  return json.contains("data") ? json["data"].at(index)["embedding"].get<Vector>() : Vector();
}

double length(const Vector& vector) {
  double squares = 0;
  for (float value : vector) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

TEST(Embeddings, AreTheSameAloneAndInAList) {
  LiveServer live;
  const auto tokens = *shipped_model()->encode("One day");
  const Json json = post(live.port(), "/v1/embeddings",
                         Json{{"model", "stories"}, {"input", {"Once upon a time", "One day", "The cat sat."}}}.dump())
                        .json();
  ASSERT_EQ(json["data"].size(), 3u) << json;
  EXPECT_EQ(json["object"], "list");
  EXPECT_EQ(json["model"], "stories");
  EXPECT_EQ(json["data"][1]["index"], 1);
  EXPECT_EQ(json["data"][1]["object"], "embedding");
  EXPECT_EQ(openai(live.port(), {{"input", "One day"}}), json["data"][1]["embedding"].get<Vector>());
  EXPECT_EQ(openai(live.port(), {{"input", tokens}}), json["data"][1]["embedding"].get<Vector>());
  EXPECT_EQ(openai(live.port(), {{"input", {{5}, tokens}}}, 1), json["data"][1]["embedding"].get<Vector>());
  EXPECT_NEAR(length(json["data"][0]["embedding"].get<Vector>()), 1, 1e-5);
  EXPECT_EQ(static_cast<int64_t>(json["data"][0]["embedding"].size()),
            live.server->service().models().first()->embeddings->width(Pooling::mean));
  EXPECT_GT(json["usage"]["prompt_tokens"].get<int64_t>(), 8);
  EXPECT_EQ(json["usage"]["total_tokens"], json["usage"]["prompt_tokens"]);
}

TEST(Embeddings, Base64IsTheSameFloats) {
  LiveServer live;
  const Vector numbers = openai(live.port(), {{"input", "One day"}});
  const Json json = post(live.port(), "/v1/embeddings", R"({"input": "One day", "encoding_format": "base64"})").json();
  const std::string text = json["data"][0]["embedding"];
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (char c : text.substr(0, text.find('='))) {
    bits =
        bits << 6 | static_cast<uint32_t>(
                        std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/").find(c));
    if ((count += 6) >= 8) bytes.push_back(static_cast<char>(bits >> (count -= 8)));
  }
  EXPECT_EQ(text.size(), (bytes.size() + 2) / 3 * 4);
  Vector decoded(bytes.size() / 4);
  std::memcpy(decoded.data(), bytes.data(), bytes.size());
  EXPECT_EQ(decoded, numbers);
}

TEST(Embeddings, FewerDimensionsAreScaledAgain) {
  LiveServer live;
  Vector all = openai(live.port(), {{"input", "One day"}});
  const Vector few = openai(live.port(), {{"input", "One day"}, {"dimensions", 16}});
  ASSERT_EQ(few.size(), 16u);
  all.resize(16);
  const double scale = length(all);
  for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(few[i], all[i] / scale, 1e-6);
}

TEST(Embeddings, EveryDialectHasTheSameVectors) {
  LiveServer live;
  const Vector vector = openai(live.port(), {{"input", "One day"}});
  const Json ollama = post(live.port(), "/api/embed", R"({"model": "stories", "input": ["Once", "One day"]})").json();
  EXPECT_EQ(ollama["embeddings"].at(1).get<Vector>(), vector);
  EXPECT_GT(ollama["total_duration"], 0);
  EXPECT_FALSE(ollama.contains("truncated"));
  for (const char* path : {"/embedding", "/embeddings"})
    EXPECT_EQ(post(live.port(), path, R"({"content": "One day"})").json().at(0)["embedding"].at(0).get<Vector>(),
              vector)
        << path;
  const Json raw = post(live.port(), "/embedding", R"({"content": "One day", "embd_normalize": -1})").json();
  const Json old = post(live.port(), "/api/embeddings", R"({"model": "stories", "prompt": "One day"})").json();
  EXPECT_EQ(old["embedding"], raw.at(0)["embedding"].at(0));
  EXPECT_GT(std::abs(length(old["embedding"].get<Vector>()) - 1), 1e-3);
}

TEST(Embeddings, PoolingIsTheModelsTheServersOrTheRequests) {
  LiveServer live;
  const Json tokens =
      post(live.port(), "/embedding", R"({"content": "One day", "pooling": "none", "embd_normalize": -1})")
          .json()
          .at(0)["embedding"];
  ASSERT_EQ(tokens.size(), shipped_model()->encode("One day")->size());
  const auto pooled = [&](const char* pooling) {
    return post(live.port(), "/embedding",
                Json{{"content", "One day"}, {"pooling", pooling}, {"embd_normalize", -1}}.dump())
        .json()
        .at(0)["embedding"]
        .at(0);
  };
  EXPECT_EQ(pooled("last"), tokens.back());
  EXPECT_EQ(pooled("cls"), tokens.front());
  EXPECT_EQ(openai(live.port(), {{"input", "One day"}}),
            openai(live.port(), {{"input", "One day"}, {"pooling", "last"}}));
  ServiceOptions options;
  options.pooling = Pooling::mean;
  LiveServer mean(options);
  EXPECT_EQ(openai(mean.port(), {{"input", "One day"}}),
            openai(live.port(), {{"input", "One day"}, {"pooling", "mean"}}));
}

TEST(Embeddings, LongTextsAreRefusedOrCutAsRequested) {
  LiveServer live({}, {}, {.context = 32});
  std::string text = "Once upon a time there was a dog";
  for (int i = 0; i < 4; ++i) text += " and " + text;
  const Response refused = post(live.port(), "/v1/embeddings", Json{{"input", text}}.dump());
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json()["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(refused.json()["error"]["n_ctx"], 32);
  const Json cut = post(live.port(), "/api/embed", Json{{"input", {"Once", text}}}.dump()).json();
  EXPECT_EQ(cut["truncated"], Json::array({1}));
  auto tokens = *shipped_model()->encode(text);
  tokens.resize(32);
  EXPECT_EQ(cut["embeddings"].at(1).get<Vector>(), openai(live.port(), {{"input", tokens}}));
  EXPECT_EQ(post(live.port(), "/api/embed", Json{{"input", text}, {"truncate", false}}.dump()).status, 400);
}

TEST(Embeddings, EveryWrongFieldIsNamed) {
  LiveServer live;
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "input"},
      {R"({"input": 3})", "input"},
      {R"({"input": []})", "input"},
      {R"({"input": [[]]})", "input"},
      {R"({"input": ["a", 3]})", "input"},
      {R"({"input": [-1]})", "input"},
      {R"({"input": [99999999]})", "input"},
      {R"({"input": "a", "dimensions": 0})", "dimensions"},
      {R"({"input": "a", "dimensions": 100000})", "dimensions"},
      {R"({"input": "a", "encoding_format": "hex"})", "encoding_format"},
      {R"({"input": "a", "pooling": "none"})", "pooling"},
      {R"({"input": "a", "pooling": "max"})", "pooling"},
      {R"({"input": "a", "model": "other"})", "model"},
  };
  for (const auto& [body, param] : cases) {
    const Response answer = post(live.port(), "/v1/embeddings", body);
    EXPECT_GE(answer.status, 400) << body;
    EXPECT_EQ(answer.json()["error"]["param"], param) << answer.body;
  }
  const Json many = {{"input", std::vector<std::string>(3000, "a")}};
  EXPECT_EQ(post(live.port(), "/v1/embeddings", many.dump()).json()["error"]["param"], "input");
}

TEST(Score, IsTheCosineOfTheVectors) {
  LiveServer live;
  const Json json =
      post(live.port(), "/score", R"({"text_1": "One day", "text_2": ["One day", "The cat sat."]})").json();
  ASSERT_EQ(json["data"].size(), 2u) << json;
  EXPECT_NEAR(json["data"][0]["score"].get<double>(), 1, 1e-5);
  const Vector left = openai(live.port(), {{"input", "One day"}}),
               right = openai(live.port(), {{"input", "The cat sat."}});
  double cosine = 0;
  for (size_t i = 0; i < left.size(); ++i) cosine += static_cast<double>(left[i]) * right[i];
  EXPECT_NEAR(json["data"][1]["score"].get<double>(), cosine, 1e-9);
  const Json pairs =
      post(live.port(), "/v1/score", R"({"text_1": ["One day", "a"], "text_2": ["a", "The cat sat."]})").json();
  EXPECT_EQ(pairs["data"].size(), 2u);
  EXPECT_EQ(post(live.port(), "/score", R"({"text_1": ["a", "b"], "text_2": ["a"]})").json()["error"]["param"],
            "text_1");
}

}  // namespace
}  // namespace millrace
