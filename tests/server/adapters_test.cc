// LoRA adapters over HTTP: chosen by a model's name, by the field and by the scales set for all; loaded and unloaded.
#include "server/live_server.h"
#include "test_paths.h"

namespace millrace {
namespace {

const std::string kGolden = std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/";

struct Adapted {
  std::shared_ptr<const LanguageModel> model;
  std::unique_ptr<LiveServer> live;

  Adapted() {
    auto loaded = LanguageModel::load(kGolden + "llama3/model.gguf", {.threads = 1});
    EXPECT_TRUE(loaded.ok());
    model = *loaded;
    EngineOptions engine;
    engine.adapters = {"alpha=" + kGolden + "lora/llama3", "beta=" + kGolden + "lora/llama3/adapter.gguf"};
    ServiceOptions service;
    service.names = {"base"};
    service.local_only = true;
    live = std::make_unique<LiveServer>(std::move(service), HttpLimits{}, engine, nullptr, model);
  }
  int port() const { return live->port(); }
  // A path and a body that asks for a few sampled tokens.
  Json tokens(const std::string& name, const Json& more = Json::object()) const {
    Json body = {{"model", name}, {"prompt", {1, 2, 3, 4}}, {"max_tokens", 10}, {"temperature", 1.0},
                 {"seed", 3},     {"ignore_eos", true}};
    body.update(more);
    const Response response = post(port(), "/v1/completions", body.dump());
    EXPECT_EQ(response.status, 200) << response.body;
    if (response.status != 200) return Json();
    EXPECT_EQ(response.json()["model"], name);
    return response.json()["choices"][0]["text"];
  }
};

TEST(Adapters, AreChosenByNameByFieldAndByScale) {
  const Adapted server;
  const Json plain = server.tokens("base"), adapted = server.tokens("alpha");
  EXPECT_NE(plain, adapted);
  EXPECT_EQ(server.tokens("beta"), adapted);  // the same numbers in the other file kind
  EXPECT_EQ(server.tokens("base", {{"lora", {{{"id", 0}, {"scale", 1.0}}}}}), adapted);
  EXPECT_EQ(server.tokens("base", {{"lora", {{{"id", 0}, {"scale", 0}}}}}), plain);
  EXPECT_NE(server.tokens("base", {{"lora", {{{"id", 1}, {"scale", -2}}}}}), adapted);

  EXPECT_EQ(post(server.port(), "/lora-adapters", R"([{"id": 1, "scale": 1.0}])").status, 200);
  EXPECT_EQ(server.tokens("base"), adapted);
  EXPECT_EQ(server.tokens("base", {{"lora", Json::array()}}), plain);  // explicitly none
  const Json list = get(server.port(), "/lora-adapters").json();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0]["name"], "alpha");
  EXPECT_EQ(list[0]["scale"], 0);
  EXPECT_EQ(list[1]["scale"], 1);
  EXPECT_EQ(post(server.port(), "/lora-adapters", "[]").status, 200);
  EXPECT_EQ(server.tokens("base"), plain);

  const std::string metrics = get(server.port(), "/metrics").body;
  EXPECT_NE(
      metrics.find("millrace_lora_requests_info{max_lora=\"2\",waiting_lora_adapters=\"\",running_lora_adapters=\"\"}"),
      std::string::npos)
      << metrics;
  const Json models = get(server.port(), "/v1/models").json()["data"];
  ASSERT_EQ(models.size(), 3u);
  EXPECT_EQ(models[1]["id"], "alpha");
  EXPECT_EQ(models[1]["parent"], "base");
}

TEST(Adapters, AreLoadedListedAndUnloaded) {
  const Adapted server;
  const Json adapted = server.tokens("alpha");
  const auto change = [&](const char* path, const Json& body) { return post(server.port(), path, body.dump()); };
  EXPECT_EQ(change("/v1/load_lora_adapter", {{"lora_name", "gamma"}, {"lora_path", kGolden + "lora/llama3"}}).status,
            200);
  EXPECT_EQ(server.tokens("gamma"), adapted);
  EXPECT_EQ(change("/v1/unload_lora_adapter", {{"lora_name", "gamma"}}).status, 200);
  const Response gone = change("/v1/completions", {{"model", "gamma"}, {"prompt", "a"}});
  EXPECT_EQ(gone.status, 404) << gone.body;
  EXPECT_EQ(change("/v1/unload_lora_adapter", {{"lora_name", "gamma"}}).status, 404);
  const Response wrong =
      change("/v1/load_lora_adapter", {{"lora_name", "x"}, {"lora_path", kGolden + "lora/gemma2/adapter.gguf"}});
  EXPECT_EQ(wrong.status, 400);
  EXPECT_NE(wrong.body.find("gemma2"), std::string::npos) << wrong.body;
  EXPECT_EQ(change("/v1/load_lora_adapter", {{"lora_name", "base"}, {"lora_path", kGolden + "lora/llama3"}}).status,
            400);
}

TEST(Adapters, InvalidRequestsAreRefused) {
  const Adapted server;
  const auto status = [&](const char* path, const std::string& body) { return post(server.port(), path, body).status; };
  EXPECT_EQ(status("/v1/completions", R"({"model": "base", "prompt": "a", "lora": [{"id": 2}]})"), 400);
  EXPECT_EQ(status("/v1/completions", R"({"model": "base", "prompt": "a", "lora": [{"scale": 2}]})"), 400);
  EXPECT_EQ(status("/v1/completions", R"({"model": "base", "prompt": "a", "lora": [{"id": 0, "scale": 1e300}]})"), 400);
  EXPECT_EQ(
      status("/v1/completions", R"({"model": "alpha", "prompt": "a", "echo": true, "logprobs": 1, "max_tokens": 0})"),
      400);
  for (const char* body : {"{}", "not json", R"([{"id": -1, "scale": 1}])", R"([{"id": 7, "scale": 1}])",
                           R"([{"id": 0, "scale": "1"}])", R"([{"id": 0, "scale": 1e300}])"})
    EXPECT_EQ(status("/lora-adapters", body), 400) << body;
}

}  // namespace
}  // namespace millrace
