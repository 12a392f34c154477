// /v1/completions beyond plain text: best_of, beam search, fill-in-the-middle; and the llama-server requests of
// editors.
#include <filesystem>
#include <fstream>

#include "server/live_server.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr const char* kText = "/v1/completions";

TEST(Completions, BestOfReturnsTheLikeliest) {
  LiveServer live;
  const Json body = {
      {"prompt", {"Once upon a time", "One day"}}, {"max_tokens", 8}, {"temperature", 1}, {"seed", 3}, {"logprobs", 0}};
  const auto mean = [](const Json& choice) {
    double sum = 0;
    for (const Json& logprob : choice["logprobs"]["token_logprobs"]) sum += logprob.get<double>();
    return sum / static_cast<double>(choice["logprobs"]["token_logprobs"].size());
  };
  Json all = body, best = body;
  all["n"] = 5;
  best["n"] = 2;
  best["best_of"] = 5;
  const Json every = post(live.port(), kText, all.dump()).json(), chosen = post(live.port(), kText, best.dump()).json();
  ASSERT_EQ(every["choices"].size(), 10u) << every;
  ASSERT_EQ(chosen["choices"].size(), 4u) << chosen;
  for (size_t prompt = 0; prompt < 2; ++prompt) {
    std::vector<Json> sorted;
    for (size_t i = 0; i < 5; ++i) sorted.push_back(every["choices"][prompt * 5 + i]);
    std::ranges::stable_sort(sorted, std::greater(), mean);
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(chosen["choices"][prompt * 2 + i]["text"], sorted[i]["text"]);
  }
  const Response refused = post(live.port(), kText, R"({"prompt": "a", "n": 3, "best_of": 2})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json()["error"]["param"], "best_of");
}

TEST(Completions, BeamSearchFindsTheLikeliest) {
  LiveServer live;
  Request request;
  request.prompt = *shipped_model()->encode("Once upon a time");
  request.max_tokens = 6;
  request.n = request.beams = 3;
  std::vector<std::string> texts(3);
  auto stream = live.engine().submit(request);
  ASSERT_TRUE(stream.ok());
  while (auto event = (*stream)->next()) texts.at(static_cast<size_t>(event->answer)) += event->text;
  const Json json =
      post(live.port(), kText, R"({"prompt": "Once upon a time", "max_tokens": 6, "n": 3, "use_beam_search": true})")
          .json();
  ASSERT_EQ(json["choices"].size(), 3u) << json;
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(json["choices"][i]["text"], texts[i]);
  const Json wider =
      post(
          live.port(), kText,
          R"({"prompt": "Once upon a time", "max_tokens": 6, "best_of": 3, "use_beam_search": true, "length_penalty": 1})")
          .json();
  ASSERT_EQ(wider["choices"].size(), 1u) << wider;
  EXPECT_EQ(wider["choices"][0]["text"], texts[0]);
  EXPECT_EQ(post(live.port(), kText, R"({"prompt": "a", "use_beam_search": true, "n": 2, "early_stopping": "maybe"})")
                .json()["error"]["param"],
            "early_stopping");
  EXPECT_EQ(post(live.port(), kText, R"({"prompt": "a", "use_beam_search": true, "n": 2, "stop": "b"})").status, 400);
}

TEST(Completions, ScoreLikeTheLongPrompt) {
  LiveServer live;
  const Json json = post(live.port(), kText,
                         R"({"prompt": [[5, 9, 17], [5, 9, 17, 30]], "max_tokens": 0, "echo": true, "logprobs": 1})")
                        .json();
  ASSERT_EQ(json["choices"].size(), 2u) << json;
  const Json &shorter = json["choices"][0]["logprobs"], &longer = json["choices"][1]["logprobs"];
  ASSERT_EQ(longer["token_logprobs"].size(), 4u);
  EXPECT_TRUE(shorter["token_logprobs"][0].is_null());
  for (size_t i = 1; i < 3; ++i) EXPECT_EQ(shorter["token_logprobs"][i], longer["token_logprobs"][i]);
}

// `documents` is vLLM's and Hugging Face's field, which a template would write into the prompt.
TEST(Completions, MisplacedDocumentsAreRefused) {
  LiveServer live;
  for (const auto& [path, body] :
       {std::pair(kText, Json{{"prompt", "a"}, {"max_tokens", 1}}),
        {"/completion", Json{{"prompt", "a"}, {"n_predict", 1}}},
        {"/v1/chat/completions", Json{{"messages", {{{"role", "user"}, {"content", "a"}}}}, {"max_tokens", 1}}}}) {
    for (const char* name : {"documents", "blocks"}) {
      Json with = body;
      with[name] = {{{"title", "One"}, {"text", "First text."}}};
      const Response answer = post(live.port(), path, with.dump());
      EXPECT_EQ(answer.status, 400) << path;
      EXPECT_NE(answer.body.find("millrace.documents has texts"), std::string::npos) << answer.body;
      with[name] = Json::array();
      EXPECT_EQ(post(live.port(), path, with.dump()).status, 200) << path;
    }
  }
}

TEST(Infill, OtherModelsRefuse) {
  LiveServer live;
  for (const auto& [path, body] : {std::pair("/infill", R"({"input_prefix": "a", "input_suffix": "b"})"),
                                   {kText, R"({"prompt": "a", "suffix": "b"})"},
                                   {"/api/generate", R"({"prompt": "a", "suffix": "b"})"}}) {
    const Response answer = post(live.port(), path, body);
    EXPECT_EQ(answer.status, 400) << path << answer.body;
    EXPECT_NE(answer.body.find("fill in"), std::string::npos) << answer.body;
  }
  EXPECT_EQ(post(live.port(), "/infill", R"({"input_prefix": "a"})").json()["error"]["param"], "input_suffix");
  EXPECT_EQ(
      post(live.port(), "/infill", R"({"input_prefix": "a", "input_suffix": "b", "input_extra": [{"filename": "x"}]})")
          .json()["error"]["param"],
      "input_extra[0].text");
  EXPECT_EQ(post(live.port(), kText, R"({"prompt": "a", "suffix": ""})").status, 200);
}

// A golden model whose last three tokens before the special ones are named like a coder model's.
constexpr TokenId kLastPlain = 123;

struct Coder {
  fs::path path = fs::temp_directory_path() / ("millrace_infill_" + std::to_string(getpid()));
  std::shared_ptr<const LanguageModel> model;
  std::unique_ptr<Server> server;

  Coder() {
    const fs::path golden = fs::path(MILLRACE_SOURCE_DIR) / "tests/golden/llama";
    fs::remove_all(path);
    fs::create_directories(path);
    for (const auto& entry : fs::directory_iterator(golden))
      if (entry.path().extension() != ".gguf" && entry.path().filename() != "tokenizer.json")
        fs::create_symlink(entry.path(), path / entry.path().filename());
    Json json = Json::parse(std::ifstream(golden / "tokenizer.json"));
    const char* names[] = {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"};
    Json vocab = Json::object(), merges = Json::array();
    std::vector<std::string> gone;
    for (const auto& [token, id] : json["model"]["vocab"].items()) {
      const auto from_end = static_cast<size_t>(kLastPlain - id.get<TokenId>());
      if (from_end < 3) gone.push_back(token);
      vocab[from_end < 3 ? names[from_end] : token] = id;
    }
    for (const Json& merge : json["model"]["merges"]) {
      const std::string pair = merge.is_string() ? merge.get<std::string>()
                                                 : merge[0].get<std::string>() + " " + merge[1].get<std::string>();
      const std::string left = pair.substr(0, pair.find(' ')), right = pair.substr(pair.find(' ') + 1);
      const auto lost = [&](const std::string& token) { return std::ranges::find(gone, token) != gone.end(); };
      if (!lost(left) && !lost(right) && !lost(left + right)) merges.push_back(merge);
    }
    json["model"]["vocab"] = std::move(vocab);
    json["model"]["merges"] = std::move(merges);
    for (TokenId i = 0; i < 3; ++i)
      json["added_tokens"].push_back({{"id", kLastPlain - i},
                                      {"content", names[i]},
                                      {"single_word", false},
                                      {"lstrip", false},
                                      {"rstrip", false},
                                      {"normalized", false},
                                      {"special", true}});
    std::ofstream(path / "tokenizer.json") << json.dump();
    auto loaded = LanguageModel::load(path, {.threads = 1});
    EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().message);
    model = *loaded;
    ServiceOptions service;
    service.names = {"coder"};
    service.engine.threads = 1;
    HttpLimits http;
    http.port = 0;
    auto started = Server::start(model, std::move(*Engine::create(model, service.engine)), service, http);
    EXPECT_TRUE(started.ok());
    server = std::move(*started);
  }
  ~Coder() {
    server.reset();
    fs::remove_all(path);
  }
};

TEST(Infill, CoderModelsFillInTheMiddle) {
  Coder coder;
  const int port = coder.server->port();
  const auto text = [&](const char* part) { return *coder.model->encode(part, false, false); };
  std::vector<TokenId> prompt = {kLastPlain};
  for (TokenId token : text("ab")) prompt.push_back(token);
  prompt.push_back(kLastPlain - 1);
  for (TokenId token : text("yz")) prompt.push_back(token);
  prompt.push_back(kLastPlain - 2);
  const Json plain = post(port, kText, Json{{"prompt", prompt}, {"max_tokens", 5}, {"temperature", 0}}.dump()).json();
  const std::string wanted = plain["choices"][0]["text"];
  const Json filled =
      post(port, kText, R"({"prompt": "ab", "suffix": "yz", "max_tokens": 5, "temperature": 0})").json();
  ASSERT_TRUE(filled.contains("choices")) << filled;
  EXPECT_EQ(filled["choices"][0]["text"], wanted);
  EXPECT_EQ(filled["usage"]["prompt_tokens"], plain["usage"]["prompt_tokens"]);
  const Json infill =
      post(port, "/infill", R"({"input_prefix": "ab", "input_suffix": "yz", "n_predict": 5, "temperature": 0})").json();
  EXPECT_EQ(infill["content"], wanted);
  EXPECT_EQ(infill["truncated"], false);
  const Json generated =
      post(port, "/api/generate",
           R"({"prompt": "ab", "suffix": "yz", "stream": false, "options": {"num_predict": 5, "temperature": 0}})")
          .json();
  EXPECT_EQ(generated["response"], wanted);
  const std::string long_text(20000, 'a');
  const Json cut = post(port, "/infill",
                        Json{{"input_prefix", "ab"},
                             {"input_suffix", "yz"},
                             {"n_predict", 2},
                             {"input_extra", {{{"filename", "x"}, {"text", long_text}}}}}
                            .dump())
                       .json();
  EXPECT_EQ(cut["truncated"], true) << cut;
  EXPECT_EQ(
      post(port, "/infill", Json{{"input_prefix", long_text}, {"input_suffix", "yz"}}.dump()).json()["error"]["type"],
      "exceed_context_size_error");
  EXPECT_EQ(post(port, kText, R"({"prompt": "ab", "suffix": "yz", "echo": true})").json()["error"]["param"], "suffix");
}

TEST(LlamaServer, RequestsOfEditors) {
  LiveServer live({}, {}, {.max_streams = 2});
  const Json props = get(live.port(), "/props").json();
  EXPECT_EQ(props["total_slots"], 2);
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], live.engine().context());
  EXPECT_TRUE(props["chat_template"].is_string());
  const Json slots = get(live.port(), "/slots?fail_on_no_slot=1").json();
  ASSERT_EQ(slots.size(), 2u);
  EXPECT_EQ(slots[0]["is_processing"], false);
  EXPECT_EQ(post(live.port(), "/slots/0?action=erase", "").status, 501);
  EXPECT_EQ(post(live.port(), "/props", "{}").status, 501);
  Client busy(live.port()), other(live.port());
  for (Client* client : {&busy, &other}) {
    client->post("/completion", R"({"prompt": "a", "n_predict": -1, "ignore_eos": true, "stream": true})");
    client->head();
  }
  ASSERT_TRUE(comes_true([&] { return live.engine().stats().running == 2; }));
  EXPECT_EQ(get(live.port(), "/slots?fail_on_no_slot=1").status, 503);
  EXPECT_EQ(get(live.port(), "/load").json()["server_load"], 2);
}

TEST(LlamaServer, TokensInBothForms) {
  LiveServer live;
  const auto tokens = *shipped_model()->encode("One day", false);
  const Json plain = post(live.port(), "/tokenize", R"({"content": "One day"})").json(),
             pieces = post(live.port(), "/tokenize", R"({"content": "One day", "with_pieces": true})").json();
  EXPECT_EQ(plain["tokens"], Json(tokens));
  ASSERT_EQ(pieces["tokens"].size(), tokens.size());
  EXPECT_EQ(pieces["tokens"][0]["id"], tokens[0]);
  const Json vllm =
      post(live.port(), "/tokenize",
           R"({"model": "stories", "prompt": "One day", "add_special_tokens": false, "return_token_strs": true})")
          .json();
  EXPECT_EQ(vllm["tokens"], Json(tokens));
  EXPECT_EQ(vllm["count"], tokens.size());
  EXPECT_EQ(vllm["token_strs"].size(), tokens.size());
  EXPECT_EQ(vllm["max_model_len"], live.engine().context());
  EXPECT_GT(post(live.port(), "/tokenize", R"({"messages": [{"role": "user", "content": "One day"}]})").json()["count"],
            0);
  EXPECT_EQ(post(live.port(), "/tokenize", "{}").json()["error"]["param"], "content");
  const Json text = post(live.port(), "/detokenize", Json{{"tokens", tokens}}.dump()).json();
  EXPECT_EQ(text["content"], text["prompt"]);
  EXPECT_TRUE(get(live.port(), "/version").json()["version"].is_string());
  EXPECT_EQ(get(live.port(), "/ping").status, 200);
  EXPECT_EQ(post(live.port(), "/ping", "").status, 200);
}

}  // namespace
}  // namespace millrace
