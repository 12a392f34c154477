// Ollama's `logprobs`, `truncate`, `num_ctx` and the `context` of /api/generate were ignored or refused, and its lists
// had an empty `digest`, which clients slice, and no quantization_level. The tests only checked that the members exist.
#include <filesystem>
#include <fstream>

#include "run/embedded_model.h"
#include "run/language_model.h"
#include "server/live_server.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::string ollama_body(const std::string& more) {
  return R"({"stream": false, "prompt": "Once upon a time", )" + more + "}";
}

bool is_digest(const Json& digest) {
  return digest.is_string() && digest.get_ref<const std::string&>().size() == 64 &&
         digest.get_ref<const std::string&>().find_first_not_of("0123456789abcdef") == std::string::npos;
}

TEST(OllamaFields, LogprobsInOllamasFormat) {
  LiveServer live;
  const std::string options = R"("options": {"temperature": 0, "num_predict": 6}, "logprobs": true, "top_logprobs": 2)";
  const Json whole = post(live.port(), "/api/generate", ollama_body(options)).json();
  ASSERT_TRUE(whole.contains("logprobs")) << whole;
  ASSERT_EQ(whole["logprobs"].size(), 6u);
  std::string text;
  for (const Json& token : whole["logprobs"]) {
    EXPECT_LE(token["logprob"].get<double>(), 0);
    ASSERT_EQ(token["top_logprobs"].size(), 2u);
    EXPECT_EQ(token["top_logprobs"][0]["token"], token["token"]);  // greedy
    for (const Json& byte : token["bytes"]) text += static_cast<char>(byte.get<int>());
  }
  EXPECT_NE(text.find(whole["response"].get<std::string>()), std::string::npos) << text;
  Json streamed = Json::array();
  std::istringstream lines(post(live.port(), "/api/chat",
                                R"({"messages": [{"role": "user", "content": "Once upon a time"}], )" + options + "}")
                               .body);
  for (std::string line; std::getline(lines, line);) {
    const Json part = Json::parse(line);
    if (part.contains("logprobs")) streamed.insert(streamed.end(), part["logprobs"].begin(), part["logprobs"].end());
  }
  EXPECT_EQ(streamed.size(), 6u) << streamed;
  EXPECT_FALSE(
      post(live.port(), "/api/generate", ollama_body(R"("options": {"num_predict": 2})")).json().contains("logprobs"));
  EXPECT_EQ(post(live.port(), "/api/generate", ollama_body(R"("top_logprobs": 2)")).status, 400);
}

TEST(OllamaFields, AContextContinuesAnAnswer) {
  LiveServer live;
  const std::string options = R"("options": {"temperature": 0, "num_predict": 8, "seed": 1})";
  const Json first = post(live.port(), "/api/generate", ollama_body(options)).json();
  ASSERT_TRUE(first.contains("context") && first["context"].is_array()) << first;
  ASSERT_EQ(first["context"].size(), first["prompt_eval_count"].get<size_t>() + 8);
  const Json next =
      post(live.port(), "/api/generate",
           R"({"stream": false, "prompt": "And then?", "context": )" + first["context"].dump() + ", " + options + "}")
          .json();
  ASSERT_TRUE(next.contains("context")) << next;
  const auto context = next["context"].get<std::vector<int>>(), before = first["context"].get<std::vector<int>>();
  EXPECT_TRUE(std::equal(before.begin(), before.end(), context.begin()));
  EXPECT_GT(next["prompt_eval_count"], before.size());
  // The continuation is the engine's answer to those tokens.
  const std::vector<TokenId> prompt(context.begin(), context.end() - 8);
  const Json raw =
      post(live.port(), "/v1/completions", Json{{"prompt", prompt}, {"max_tokens", 8}, {"temperature", 0}}.dump())
          .json();
  EXPECT_EQ(raw["choices"][0]["text"], next["response"]);
  // A stream has it in its last line.
  const std::string stream =
      post(live.port(), "/api/generate", R"({"prompt": "Once upon a time", )" + options + "}").body;
  const size_t last = stream.rfind('\n', stream.size() - 2);
  EXPECT_EQ(Json::parse(stream.substr(last + 1))["context"], first["context"]);
  for (const char* wrong :
       {R"("context": [99999999])", R"("context": [1], "raw": true)", R"("system": "a", "raw": true)"}) {
    const Response answer = post(live.port(), "/api/generate", ollama_body(wrong));
    EXPECT_EQ(answer.status, 400) << wrong << answer.body;
  }
}

TEST(OllamaFields, TruncateAndNumCtx) {
  LiveServer live;
  std::string words;
  for (int i = 0; i < 3000; ++i) words += "word ";
  const auto ask = [&](const std::string& prompt, const std::string& more) {
    return post(live.port(), "/api/generate", R"({"stream": false, "prompt": ")" + prompt + "\", " + more + "}");
  };
  EXPECT_EQ(ask(words, R"("truncate": false)").status, 400);
  const Response cut = ask(words, R"("truncate": true, "options": {"num_predict": 3})");
  EXPECT_EQ(cut.status, 200) << cut.body;
  EXPECT_TRUE(cut.headers.contains("millrace-truncated-tokens"));
  const Json bounded = ask("Once upon a time", R"("options": {"num_ctx": 60, "temperature": 0})").json();
  EXPECT_EQ(bounded["done_reason"], "length") << bounded;
  EXPECT_LE(bounded["prompt_eval_count"].get<int>() + bounded["eval_count"].get<int>(), 60);
  EXPECT_EQ(ask("Once upon a time there was a girl and a boy", R"("options": {"num_ctx": 5})").status, 400);
}

TEST(OllamaFields, DigestsAreOfTheFiles) {
  LiveServer live;
  const Json tags = get(live.port(), "/api/tags").json(), ps = get(live.port(), "/api/ps").json();
  ASSERT_TRUE(is_digest(tags["models"][0]["digest"])) << tags;
  EXPECT_EQ(ps["models"][0]["digest"], tags["models"][0]["digest"]);
  EXPECT_FALSE(tags["models"][0]["details"]["quantization_level"].get<std::string>().empty()) << tags;
  EXPECT_GT(ps["models"][0]["context_length"], 0);
  EXPECT_GT(tags["models"][0]["size"], 0);
  EXPECT_EQ(get(live.port(), "/api/tags").json(), tags);
  EXPECT_FALSE(post(live.port(), "/api/show", R"({"model": "stories"})")
                   .json()["details"]["quantization_level"]
                   .get<std::string>()
                   .empty());

  // Two models of a folder, not loaded: the same bytes have one digest, and a changed byte another.
  const fs::path folder = fs::temp_directory_path() / ("millrace-digest-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const EmbeddedModel* shipped = find_embedded_model("stories");
  ASSERT_NE(shipped, nullptr);
  const auto image = shipped->image;
  std::string bytes(image.begin(), image.end());
  std::ofstream(folder / "one.gguf", std::ios::binary) << bytes;
  std::ofstream(folder / "same.gguf", std::ios::binary) << bytes;
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  for (size_t at = 1 << 20; at < bytes.size(); at += 4096) bytes[at] = static_cast<char>(bytes[at] ^ 1);
  bytes[0] = 'G';
  std::ofstream(folder / "other.gguf", std::ios::binary) << bytes;
  auto registry = ModelRegistry::create({.folder = folder.string()});
  ASSERT_TRUE(registry.ok());
  auto server = Server::start(std::move(*registry), {}, {.port = 0, .io_threads = 1});
  ASSERT_TRUE(server.ok()) << server.error().message;
  std::map<std::string, Json> models;
  const Json listed = get((*server)->port(), "/api/tags").json();
  for (const Json& model : listed["models"]) models[model["name"]] = model;
  ASSERT_EQ(models.size(), 3u) << listed;
  EXPECT_TRUE(is_digest(models["one"]["digest"]));
  EXPECT_EQ(models["one"]["digest"], models["same"]["digest"]);
  EXPECT_NE(models["one"]["digest"], models["other"]["digest"]);
  EXPECT_EQ(models["one"]["digest"], tags["models"][0]["digest"]);
  EXPECT_EQ(models["one"]["details"], tags["models"][0]["details"]);
  EXPECT_EQ(models["one"]["size"], fs::file_size(folder / "one.gguf"));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace millrace
