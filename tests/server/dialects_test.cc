// Anthropic's, Ollama's and llama-server's APIs, and operators' endpoints, against a live server.
#include <fstream>
#include <sstream>

#include "prompt/message_rewrites.h"
#include "server/api/api_docs.h"
#include "server/api/endpoint.h"
#include "server/live_server.h"
#include "test_paths.h"

namespace millrace {
namespace {

Request greedy(const std::string& prompt, int64_t max_tokens) {
  Request request;
  request.prompt = *shipped_model()->encode(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  return request;
}

std::vector<Json> lines_of(const std::string& text) {
  std::vector<Json> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line, nullptr, false));
  return out;
}

TEST(Anthropic, AnswersWholeAndStreamed) {
  LiveServer live;
  const std::string text = ask_engine(live.engine(), greedy("Once upon a time", 6)).text;
  const std::string body =
      R"({"model": "stories", "max_tokens": 6, "temperature": 0, "messages": [{"role": "user", "content": [{"type": "text", "text": "Once upon a time"}]}])";
  const Json whole = post(live.port(), "/v1/messages", body + "}").json();
  EXPECT_EQ(whole["type"], "message") << whole;
  EXPECT_EQ(whole["content"], Json::array({Json{{"type", "text"}, {"text", text}}}));
  EXPECT_EQ(whole["stop_reason"], "max_tokens");
  EXPECT_EQ(whole["usage"]["output_tokens"], 6);

  const Response streamed = post(live.port(), "/v1/messages", body + R"(, "stream": true})");
  std::vector<std::string> names;
  std::istringstream in(streamed.body);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("event: ")) names.push_back(line.substr(7));
  ASSERT_GE(names.size(), 6u);
  EXPECT_EQ(names[0], "message_start");
  EXPECT_EQ(names[1], "content_block_start");
  EXPECT_EQ(names[names.size() - 3], "content_block_stop");
  EXPECT_EQ(names[names.size() - 2], "message_delta");
  EXPECT_EQ(names.back(), "message_stop");
  std::string joined;
  for (const std::string& data : events_of(streamed.body)) {
    const Json event = Json::parse(data);
    if (event["type"] == "content_block_delta") joined += event["delta"]["text"].get<std::string>();
    if (event["type"] == "message_delta") {
      EXPECT_EQ(event["delta"]["stop_reason"], "max_tokens");
    }
  }
  EXPECT_EQ(joined, text);
}

TEST(Anthropic, StopSequencesPrefillSystemAndCounting) {
  LiveServer live;
  const Direct direct = ask_engine(live.engine(), greedy("Once upon a time", 30));
  const std::string stop = direct.text.substr(20, 6);
  Json body = {{"max_tokens", 30},
               {"temperature", 0},
               {"messages", {{{"role", "user"}, {"content", "Once upon a time"}}}},
               {"stop_sequences", {stop}}};
  Json json = post(live.port(), "/v1/messages", body.dump()).json();
  EXPECT_EQ(json["stop_reason"], "stop_sequence");
  EXPECT_EQ(json["stop_sequence"], stop);
  // The last message is the answer's beginning; an unknown role counts as the user's.
  body = {{"max_tokens", 6},
          {"temperature", 0},
          {"messages", {{{"role", "ctx"}, {"content", "Once upon"}}, {{"role", "assistant"}, {"content", " a time"}}}}};
  EXPECT_EQ(post(live.port(), "/v1/messages", body.dump()).json()["content"][0]["text"],
            ask_engine(live.engine(), greedy("Once upon a time", 6)).text);
  body = {{"system", "Once upon"}, {"messages", {{{"role", "assistant"}, {"content", " a time"}}}}};
  EXPECT_EQ(post(live.port(), "/v1/messages/count_tokens", body.dump()).json()["input_tokens"],
            static_cast<int64_t>(greedy("Once upon a time", 1).prompt.size()));
}

TEST(Anthropic, ErrorsInAnthropicsFormat) {
  LiveServer live;
  const std::pair<const char*, const char*> cases[] = {
      {R"({"messages": [{"role": "user", "content": "a"}]})", "max_tokens"},
      {R"({"max_tokens": 0, "messages": [{"role": "user", "content": "a"}]})", "max_tokens"},
      {R"({"max_tokens": 5, "messages": [{"role": "user"}]})", "messages[0].content"},
      {R"({"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "image"}]}]})",
       "messages[0].content[0]"},
      {R"({"max_tokens": 5, "messages": [{"role": "user", "content": "a"}], "tools": [{"name": ""}]})", "tools"},
      {R"({"max_tokens": 5, "messages": [{"role": "user", "content": "a"}], "system": 4})", "system"}};
  for (const auto& [body, field] : cases) {
    const Response answer = post(live.port(), "/v1/messages", body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_EQ(answer.json()["type"], "error") << body;
    EXPECT_EQ(answer.json()["error"]["type"], "invalid_request_error");
    EXPECT_TRUE(answer.json()["error"]["message"].get<std::string>().starts_with(field)) << answer.body;
  }
}

TEST(Ollama, ChatAndGenerate) {
  LiveServer live;
  const std::string text = ask_engine(live.engine(), greedy("Once upon a time", 6)).text;
  const std::string options = R"("options": {"temperature": 0, "num_predict": 6})";
  const Response chat = post(
      live.port(), "/api/chat",
      R"({"model": "stories:latest", "messages": [{"role": "user", "content": "Once upon a time"}], )" + options + "}");
  EXPECT_EQ(chat.headers.at("content-type"), "application/x-ndjson");
  const auto lines = lines_of(chat.body);
  std::string joined;
  for (const Json& line : lines) joined += line["message"]["content"].get<std::string>();
  EXPECT_EQ(joined, text);
  EXPECT_EQ(lines.back()["done"], true);
  EXPECT_EQ(lines.back()["done_reason"], "length");
  EXPECT_EQ(lines.back()["eval_count"], 6);
  EXPECT_GT(lines.back()["total_duration"].get<int64_t>(), 0);
  const Json whole = post(live.port(), "/api/generate",
                          R"({"prompt": "Once upon a time", "stream": false, "raw": true, )" + options + "}")
                         .json();
  EXPECT_EQ(whole["response"], text);
  EXPECT_EQ(whole["done"], true);
  EXPECT_EQ(post(live.port(), "/api/generate", R"({"stream": false})").json()["done_reason"], "load");
  EXPECT_EQ(lines_of(post(live.port(), "/api/chat", R"({})").body).back()["done_reason"], "load");
}

TEST(Ollama, ListsAndErrors) {
  LiveServer live;
  EXPECT_EQ(get(live.port(), "/").body, "Ollama is running");
  EXPECT_EQ(get(live.port(), "/api/tags").json()["models"][0]["name"], "stories");
  EXPECT_EQ(get(live.port(), "/api/ps").json()["models"][0]["name"], "stories");
  EXPECT_TRUE(get(live.port(), "/api/version").json()["version"].is_string());
  EXPECT_EQ(post(live.port(), "/api/show", R"({"model": "stories"})").json()["model_info"]["general.architecture"],
            "llama");
  EXPECT_EQ(post(live.port(), "/api/show", R"({"model": "other"})").status, 404);
  const Response wrong =
      post(live.port(), "/api/chat", R"({"messages": [{"role": "user", "content": "a"}], "options": {"top_p": "x"}})");
  EXPECT_EQ(wrong.status, 400);
  EXPECT_TRUE(wrong.json()["error"].get<std::string>().starts_with("options.top_p"));
  EXPECT_EQ(post(live.port(), "/api/generate", R"({"prompt": "a", "format": "xml"})").status, 400);
}

TEST(LlamaServer, TimingsCountDraftedTokens) {
  EngineOptions drafting;
  drafting.drafter = "ngram:k=4";
  LiveServer live({}, {}, drafting), plain;
  const char* body = R"({"prompt": "one two three, one two three, one two three,", "n_predict": 24, "temperature": 0})";
  const Json with = post(live.port(), "/completion", body).json();
  const Json without = post(plain.port(), "/completion", body).json();
  EXPECT_EQ(with["content"], without["content"]);
  EXPECT_FALSE(without["timings"].contains("draft_n"));
  const Json& timings = with["timings"];
  ASSERT_TRUE(timings.contains("draft_n")) << with;
  EXPECT_GT(timings["draft_n_accepted"], 0);
  EXPECT_GE(timings["draft_n"], timings["draft_n_accepted"]);
  EXPECT_LT(timings["draft_n_accepted"], 24);
}

TEST(LlamaServer, CompletionTokenizerTemplateAndProps) {
  LiveServer live;
  const Direct direct = ask_engine(live.engine(), greedy("Once upon a time", 6));
  const Json whole =
      post(live.port(), "/completion",
           R"({"prompt": "Once upon a time", "n_predict": 6, "temperature": 0, "return_tokens": true, "n_probs": 2})")
          .json();
  EXPECT_EQ(whole["content"], direct.text) << whole;
  EXPECT_EQ(whole["tokens"], Json(direct.tokens));
  EXPECT_EQ(whole["stop_type"], "limit");
  EXPECT_EQ(whole["timings"]["predicted_n"], 6);
  EXPECT_EQ(whole["completion_probabilities"].size(), 6u);
  const auto events =
      events_of(post(live.port(), "/completion",
                     R"({"prompt": "Once upon a time", "n_predict": 6, "temperature": 0, "stream": true})")
                    .body);
  std::string joined;
  for (const std::string& event : events) joined += Json::parse(event)["content"].get<std::string>();
  EXPECT_EQ(joined, direct.text);
  EXPECT_EQ(Json::parse(events.back())["stop"], true);

  const Json tokens =
      post(live.port(), "/tokenize", R"({"content": "Once upon a time", "add_special": true})").json()["tokens"];
  EXPECT_EQ(tokens, Json(*shipped_model()->encode("Once upon a time")));
  EXPECT_EQ(post(live.port(), "/detokenize", Json{{"tokens", tokens}}.dump()).json()["content"],
            shipped_model()->decode(tokens.get<std::vector<TokenId>>(), false));
  EXPECT_TRUE(post(live.port(), "/tokenize", R"({"content": "a", "with_pieces": true})")
                  .json()["tokens"][0]["piece"]
                  .is_string());
  EXPECT_EQ(
      post(live.port(), "/apply-template", R"({"messages": [{"role": "user", "content": "Hi"}]})").json()["prompt"],
      "Hi");
  EXPECT_EQ(get(live.port(), "/props").json()["default_generation_settings"]["n_ctx"], live.engine().context());
  EXPECT_EQ(get(live.port(), "/slots").json().size(), 8u);
  const Response wrong = post(live.port(), "/tokenize", R"({"content": 4})");
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(wrong.json()["error"]["type"], "invalid_request_error");
  EXPECT_EQ(post(live.port(), "/detokenize", R"({"tokens": [-1]})").status, 400);
  EXPECT_EQ(post(live.port(), "/detokenize", R"({"tokens": [2000000000]})").json()["content"], "");
}

TEST(Scoring, EchoedPromptsHaveTheLogprobsOfGeneration) {
  LiveServer live;
  // Generated tokens with their log-probabilities, then the same text scored as a prompt: the same bits.
  Request request = greedy("Once upon a time", 8);
  request.sampling.logprobs = 1;
  std::vector<TokenId> tokens = request.prompt;
  std::vector<double> expected;
  auto stream = live.engine().submit(request);
  while (auto event = (*stream)->next()) {
    tokens.push_back(event->token);
    expected.push_back(event->logprob.logprob);
  }
  const Json body = {{"prompt", tokens}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 1}};
  const Json json = post(live.port(), "/v1/completions", body.dump()).json();
  ASSERT_TRUE(json.contains("choices")) << json;
  const Json& choice = json["choices"][0];
  EXPECT_EQ(choice["text"], shipped_model()->decode(tokens));
  EXPECT_EQ(choice["finish_reason"], "length");
  const Json& logprobs = choice["logprobs"];
  ASSERT_EQ(logprobs["tokens"].size(), tokens.size());
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["text_offset"][0], 0);
  const size_t first = tokens.size() - expected.size();
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(logprobs["token_logprobs"][first + i].get<float>(), static_cast<float>(expected[i])) << i;
  // Streamed, and with an answer behind it.
  const auto events =
      events_of(post(live.port(), "/v1/completions",
                     R"({"prompt": "One day", "max_tokens": 2, "echo": true, "logprobs": 0, "stream": true})")
                    .body);
  const Json first_chunk = Json::parse(events[0])["choices"][0];
  EXPECT_TRUE(first_chunk["text"].get<std::string>().starts_with("One day"));
  EXPECT_EQ(first_chunk["logprobs"]["tokens"].size(), shipped_model()->encode("One day")->size() + 1);
}

TEST(Operation, MetricsUnderBothNames) {
  ServiceOptions service;
  service.metrics_aliases = {"vllm"};
  LiveServer live(service);
  post(live.port(), "/v1/completions", R"({"prompt": "One day", "max_tokens": 3, "ignore_eos": true})");
  post(live.port(), "/v1/completions", R"({"prompt": 4})");
  const std::string text = get(live.port(), "/metrics").body;
  for (const char* line :
       {"millrace_answers_finished_total{finished_reason=\"length\",model_name=\"stories\"} 1",
        "millrace_generated_tokens_total{model_name=\"stories\"} 3",
        "millrace_requests_refused_total{kind=\"bad_request\"} 1",
        "millrace_time_to_first_token_seconds_count{model_name=\"stories\"} 1",
        "millrace_inter_token_latency_seconds_count{model_name=\"stories\"} 2",
        "vllm:generation_tokens_total{model_name=\"stories\",engine=\"0\"} 3",
        "vllm:time_to_first_token_seconds_count{model_name=\"stories\",engine=\"0\"} 1",
        "vllm:request_success_total{finished_reason=\"length\",model_name=\"stories\",engine=\"0\"} 1",
        "vllm:num_requests_running{model_name=\"stories\",engine=\"0\"} 0"})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
}

TEST(Operation, HealthWhileDraining) {
  LiveServer live;
  Client held(live.port());
  held.post("/v1/completions", R"({"prompt": "One day", "max_tokens": -1, "ignore_eos": true, "stream": true})");
  ASSERT_EQ(held.head().status, 200);
  Client early(live.port());
  early.send("GET /health/ready HTTP/1.1\r\nHost: localhost\r\n");  // on its way when the drain begins
  ASSERT_TRUE(comes_true([&] { return live.server->counts().connections == 2; }));
  live.server->service().drain();
  early.send("\r\n");
  EXPECT_EQ(early.response().status, 503);
  early.get("/health/live");
  EXPECT_EQ(early.response().status, 200);
  early.post("/v1/completions", R"({"prompt": "One day"})");
  EXPECT_EQ(early.response().status, 503);
}

TEST(Schema, TheDocsAreWhatTheBinaryPrints) {
  std::ifstream file(std::string(MILLRACE_SOURCE_DIR) + "/docs/api.md");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), api_markdown()) << "write docs/api.md anew: millrace serve --api-docs > docs/api.md";
}

TEST(Schema, TheDocsNameEveryRewriteOfMessages) {
  for (const char* name : {"/docs/structured-output.md", "/docs/techniques.md"}) {
    std::ifstream file(std::string(MILLRACE_SOURCE_DIR) + name);
    std::ostringstream text;
    text << file.rdbuf();
    const auto expect_named = [&](const MessageRewrite& rewrite) {
      EXPECT_NE(text.str().find("`" + std::string(rewrite.name) + "`"), std::string::npos) << name << rewrite.name;
    };
    for (const MessageRewrite& rewrite : message_rewrites()) expect_named(rewrite);
    expect_named(empty_tools_rewrite());
  }
}

TEST(Schema, OpenApiNamesEveryPath) {
  LiveServer live;
  const Json json = get(live.port(), "/openapi.json").json();
  EXPECT_EQ(json["openapi"], "3.1.0");
  for (const Endpoint& endpoint : endpoints())
    if (!endpoint.path.ends_with('*')) EXPECT_TRUE(json["paths"].contains(endpoint.path)) << endpoint.path;
  EXPECT_EQ(json["paths"]["/v1/messages"]["post"]["requestBody"]["content"]["application/json"]["schema"]["required"],
            Json({"messages", "max_tokens"}));
}

}  // namespace
}  // namespace millrace
