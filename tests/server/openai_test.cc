// The OpenAI API against a live server: streams byte for byte, the same tokens as the engine alone, errors by field.
#include "server/live_server.h"

namespace millrace {
namespace {

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kOpenaiPrompt = "/v1/completions";

Request greedy_completion(const std::string& prompt, int64_t max_tokens) {
  Request request;
  request.prompt = *shipped_model()->encode(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  return request;
}

TEST(OpenAiChat, AnswersEqualTheEngines) {
  LiveServer live;
  const Direct direct = ask_engine(live.engine(), greedy_completion("Once upon a time", 12));
  const Response answer =
      post(live.port(), kChat,
           R"({"messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 12, "temperature": 0})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json json = answer.json();
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["model"], "stories");
  EXPECT_EQ(json["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(json["choices"][0]["message"]["content"], direct.text);
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(json["usage"]["completion_tokens"], 12);
  EXPECT_EQ(json["usage"]["prompt_tokens"],
            static_cast<int64_t>(greedy_completion("Once upon a time", 1).prompt.size()));
}

TEST(OpenAiChat, StreamsByteForByte) {
  LiveServer live;
  Client client(live.port());
  client.post(
      kChat,
      R"({"messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 3, "temperature": 0, "stream": true,
                         "stream_options": {"include_usage": true}})",
      "X-Request-Id: abc-1\r\n");
  const Response head = client.head();
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-type"), "text/event-stream");
  EXPECT_EQ(head.headers.at("x-request-id"), "abc-1");
  std::string stream;
  for (std::string part = client.chunk(); !part.empty(); part = client.chunk()) stream += part;
  // Times differ from run to run and are checked separately.
  const size_t times = stream.find(",\"timings\":{");
  ASSERT_NE(times, std::string::npos) << stream;
  const size_t behind = stream.find('}', times) + 1;
  EXPECT_EQ(Json::parse(stream.substr(times + 11, behind - times - 11))["predicted_n"], 3);
  stream.erase(times, behind - times);
  const Json first = Json::parse(events_of(stream).at(0));
  const std::string id = first["id"], created = first["created"].dump();
  EXPECT_TRUE(id.starts_with("chatcmpl-"));

  auto stream_of = live.engine().submit(greedy_completion("Once upon a time", 3));
  ASSERT_TRUE(stream_of.ok());
  std::string expected;
  const auto frame = [&](const std::string& choices, const std::string& usage) {
    expected += R"(data: {"id":")" + id + R"(","object":"chat.completion.chunk","created":)" + created +
                R"(,"model":"stories","system_fingerprint":"millrace","choices":)" + choices + R"(,"usage":)" + usage +
                "}\n\n";
  };
  const auto choice = [](const std::string& delta, const std::string& finish) {
    return R"([{"index":0,"delta":)" + delta + R"(,"logprobs":null,"finish_reason":)" + finish + "}]";
  };
  frame(choice(R"({"role":"assistant","content":""})", "null"), "null");
  int64_t prompt_tokens = 0, cached = 0;
  while (auto event = (*stream_of)->next()) {
    if (!event->text.empty()) frame(choice(R"({"content":)" + Json(event->text).dump() + "}", "null"), "null");
    if (event->last) prompt_tokens = event->timings.prompt_tokens;
  }
  frame(choice("{}", R"("length")"), "null");
  frame("[]", R"({"prompt_tokens":)" + std::to_string(prompt_tokens) + R"(,"completion_tokens":3,"total_tokens":)" +
                  std::to_string(prompt_tokens + 3) + R"(,"prompt_tokens_details":{"cached_tokens":)" +
                  std::to_string(cached) + "}}");
  expected += "data: [DONE]\n\n";
  EXPECT_EQ(stream, expected);
}

TEST(OpenAiChat, SeedDecidesAndIsReported) {
  LiveServer live;
  const std::string body =
      R"({"messages": [{"role": "user", "content": "One day"}], "max_tokens": 16, "temperature": 1)";
  const Response first = post(live.port(), kChat, body + "}");
  ASSERT_EQ(first.status, 200);
  const Response again = post(live.port(), kChat, body + R"(, "seed": )" + first.headers.at("millrace-seed") + "}");
  EXPECT_EQ(again.json()["choices"], first.json()["choices"]);
}

TEST(OpenAiChat, SeveralAnswersAndLogprobs) {
  LiveServer live;
  const Response answer = post(
      live.port(), kChat,
      R"({"messages": [{"role": "user", "content": "One day"}], "max_tokens": 5, "n": 3, "seed": 4, "logprobs": true, "top_logprobs": 2})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json json = answer.json();
  ASSERT_EQ(json["choices"].size(), 3u);
  EXPECT_NE(json["choices"][0]["message"], json["choices"][1]["message"]);
  EXPECT_EQ(json["usage"]["completion_tokens"], 15);
  for (const Json& choice : json["choices"]) {
    ASSERT_EQ(choice["logprobs"]["content"].size(), 5u);
    std::string joined;
    for (const Json& token : choice["logprobs"]["content"]) {
      EXPECT_LE(token["logprob"].get<double>(), 0);
      ASSERT_EQ(token["top_logprobs"].size(), 2u);
      EXPECT_GE(token["top_logprobs"][0]["logprob"].get<double>(), token["logprob"].get<double>());
      for (const Json& byte : token["bytes"]) joined += static_cast<char>(byte.get<int>());
    }
    EXPECT_EQ(joined, choice["message"]["content"].get<std::string>());
  }
}

TEST(OpenAiChat, StopsBeforeAStopString) {
  LiveServer live;
  const Direct direct = ask_engine(live.engine(), greedy_completion("Once upon a time", 30));
  const std::string stop = direct.text.substr(20, 6);
  const Json body = {{"messages", {{{"role", "user"}, {"content", "Once upon a time"}}}},
                     {"max_tokens", 30},
                     {"temperature", 0},
                     {"stop", stop}};
  const Json json = post(live.port(), kChat, body.dump()).json();
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(json["choices"][0]["message"]["content"], direct.text.substr(0, direct.text.find(stop)));
}

TEST(OpenAiChat, PartsAreJoinedAndNullsAreAbsent) {
  LiveServer live;
  const std::string rest =
      R"(, "max_tokens": 4, "temperature": 0, "stop": null, "tools": null, "response_format": {"type": "text"}})";
  const Json whole = post(live.port(), kChat, R"({"messages": [{"role": "user", "content": "One day"}])" + rest).json();
  const Json parts =
      post(
          live.port(), kChat,
          R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": " day"}]}])" +
              rest)
          .json();
  ASSERT_TRUE(whole.contains("choices")) << whole;
  EXPECT_EQ(parts["choices"], whole["choices"]);
}

struct BadCase {
  const char* fields;
  const char* param;
  int status = 400;
};

// The answer itself is predicted, as text and in parts, then with its beginning left out, then something else.
TEST(OpenAiChat, PredictionsAreDraftedFromAndCounted) {
  EngineOptions drafting;
  drafting.drafter = "prediction:k=5";
  LiveServer live({}, {}, drafting), plain;
  Json body = {
      {"messages", {{{"role", "user"}, {"content", "Once upon a time"}}}}, {"max_tokens", 40}, {"temperature", 0}};
  const auto ask = [&](const LiveServer& server, const Json& content) {
    if (!content.is_null()) body["prediction"] = {{"type", "content"}, {"content", content}};
    const Response answer = post(server.port(), kChat, body.dump());
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  };
  const Json first = ask(live, nullptr);
  const std::string text = first["choices"][0]["message"]["content"];
  EXPECT_FALSE(first["usage"].contains("completion_tokens_details"));
  const std::string half = text.substr(0, text.size() / 2), rest = text.substr(text.size() / 2);
  const Json parts = {{{"type", "text"}, {"text", half}}, {{"type", "text"}, {"text", rest}}};
  for (const Json& content : {Json(text), parts, Json(rest), Json("zzz qqq")}) {
    const Json answer = ask(live, content);
    EXPECT_EQ(answer["choices"][0]["message"]["content"], text);
    const Json& details = answer["usage"]["completion_tokens_details"];
    if (content == "zzz qqq")
      EXPECT_EQ(details["accepted_prediction_tokens"], 0);
    else
      EXPECT_GT(details["accepted_prediction_tokens"], content == rest ? 10 : 25) << answer["usage"];
    EXPECT_GE(details["rejected_prediction_tokens"], 0);
  }
  const Json ignored = ask(plain, text);
  EXPECT_EQ(ignored["choices"][0]["message"]["content"], text);
  const Json nothing = {{"accepted_prediction_tokens", 0}, {"rejected_prediction_tokens", 0}};
  EXPECT_EQ(ignored["usage"]["completion_tokens_details"], nothing);
}

TEST(OpenAiErrors, WrongPredictionsAreNamed) {
  LiveServer live;
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"type": "content"})", "prediction.content"},
      {R"({"content": "a"})", "prediction.type"},
      {R"({"type": "text", "content": "a"})", "prediction.type"},
      {R"({"type": "content", "content": 1})", "prediction.content"},
      {R"({"type": "content", "content": [{"type": "text", "text": "a"}, {"type": "image", "text": "a"}]})",
       "prediction.content[1]"},
      {R"({"type": "content", "content": ["a"]})", "prediction.content[0]"},
      {R"("a")", "prediction"}};
  for (const auto& [prediction, field] : wrong) {
    const Response answer =
        post(live.port(), kChat,
             R"({"messages": [{"role": "user", "content": "a"}], "prediction": )" + std::string(prediction) + "}");
    EXPECT_EQ(answer.status, 400) << prediction << answer.body;
    EXPECT_EQ(answer.json()["error"]["param"], field) << prediction << answer.body;
  }
}

TEST(OpenAiErrors, EveryWrongFieldIsNamed) {
  LiveServer live;
  const BadCase cases[] = {
      {R"("temperature": "hot")", "temperature"},
      {R"("temperature": -1)", "temperature"},
      {R"("top_k": 1.5)", "top_k"},
      {R"("max_tokens": "9")", "max_tokens"},
      {R"("max_tokens": 99999999999)", "max_tokens"},
      {R"("max_tokens": 1e300)", "max_tokens"},
      {R"("n": 0)", "n"},
      {R"("n": 100000)", "n"},
      {R"("stop": 3)", "stop"},
      {R"("stop": ["a", 3])", "stop"},
      {R"("seed": true)", "seed"},
      {R"("stream": "yes")", "stream"},
      {R"("stream_options": {"include_usage": 1}, "stream": true)", "stream_options.include_usage"},
      {R"("stream_options": {"include_usage": true})", "stream_options"},
      {R"("logit_bias": {"x": 1})", "logit_bias"},
      {R"("logit_bias": {"1": "a"})", "logit_bias"},
      {R"("logit_bias": {"99999999": 1})", "logit_bias"},
      {R"("logit_bias": 1)", "logit_bias"},
      {R"("logprobs": 1)", "logprobs"},
      {R"("top_logprobs": 2)", "top_logprobs"},
      {R"("logprobs": true, "top_logprobs": 21)", "top_logprobs"},
      {R"("min_tokens": -1)", "min_tokens"},
      {R"("timeout": 0)", "timeout"},
      {R"("chat_template_kwargs": [])", "chat_template_kwargs"},
      {R"("model": 4)", "model"},
      {R"("model": "other")", "model", 404},
      {R"("tools": [{}])", "tools[0].function"},
      {R"("tools": [{"type": "web_search"}])", "tools[0].type", 400},
      {R"("tools": [{"type": "function", "function": {"name": "a b"}}])", "tools[0].function.name"},
      {R"("tools": [{"function": {"name": "a"}}, {"function": {"name": "a"}}])", "tools[1].function.name"},
      {R"("tools": [{"function": {"name": "a", "parameters": []}}])", "tools[0].function.parameters"},
      {R"("tools": [{"function": {"name": "a", "parameters": {"type": "nothing"}}}])", "tools"},
      {R"("tool_choice": "required")", "tool_choice"},
      {R"("tool_choice": "perhaps", "tools": [{"function": {"name": "a"}}])", "tool_choice"},
      {R"("tool_choice": {"type": "function", "function": {"name": "b"}}, "tools": [{"function": {"name": "a"}}])",
       "tool_choice"},
      {R"("response_format": {"type": "xml"})", "response_format.type"},
      {R"("response_format": {"type": "json_schema"})", "response_format.json_schema"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "x"}})",
       "response_format.json_schema.schema"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nothing"}}})",
       "response_format.json_schema.schema"},
      {R"("response_format": {"type": "json_object"}, "guided_regex": "a")", "guided_regex"},
      {R"("structured_outputs": {"json": {}, "regex": "a"})", "structured_outputs.regex"},
      {R"("structured_outputs": {"regex": "("})", "structured_outputs.regex"},
      {R"("structured_outputs": {"choice": []})", "structured_outputs.choice"},
      {R"("grammar": "root ::= nothing")", "grammar"},
      {R"("json_schema": {"$ref": "http://elsewhere"})", "json_schema"},
      {R"("stop_token_ids": ["a"])", "stop_token_ids"},
      {R"("truncate_prompt_tokens": 0)", "truncate_prompt_tokens"},
      {R"("bad_words": [""])", "bad_words"},
      {R"("reasoning_effort": "very")", "reasoning_effort"},
      {R"("prompt_logprobs": 1, "stream": true)", "prompt_logprobs"},
      {R"("thinking_token_budget": -2)", "thinking_token_budget"},
      {R"("cache_salt": "")", "cache_salt"},
      {R"("request_id": "a b")", "request_id"},
      {R"("best_of": 1, "n": 2)", "best_of"},
      {R"("messages": [{"role": "assistant", "tool_calls": [{}]}])", "messages[0].tool_calls[0].function"},
      {R"("messages": "hi")", "messages"},
      {R"("messages": [])", "messages"},
      {R"("messages": [1])", "messages[0]"},
      {R"("messages": [{"content": "hi"}])", "messages[0].role"},
      {R"("messages": [{"role": "user", "content": 5}])", "messages[0].content"},
      {R"("messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])",
       "messages[0].content[0]", 400},
  };
  Client client(live.port());
  for (const BadCase& bad : cases) {
    std::string body = std::string("{") + bad.fields;
    if (!std::string_view(bad.fields).starts_with(R"("messages")"))
      body += R"(, "messages": [{"role": "user", "content": "hi"}])";
    client.post(kChat, body + "}");
    const Response answer = client.response();
    EXPECT_EQ(answer.status, bad.status) << bad.fields << answer.body;
    EXPECT_EQ(answer.json()["error"]["param"], bad.param) << answer.body;
    EXPECT_TRUE(answer.json()["error"]["message"].is_string());
  }
}

TEST(OpenAiErrors, BadJsonPathsAndMethods) {
  LiveServer live;
  Client client(live.port());
  for (const char* body : {"", "{", "[1]", "{\"messages\": \"\xFF\"}", "nul", "{\"a\": 1e999}"}) {
    client.post(kChat, body);
    const Response answer = client.response();
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_EQ(answer.json()["error"]["type"], "invalid_request_error") << body;
  }
  client.post(kChat, std::string(100000, '['));
  EXPECT_EQ(client.response().status, 400);
  EXPECT_EQ(get(live.port(), "/v1/nothing").status, 404);
  EXPECT_EQ(get(live.port(), kChat).status, 405);
  EXPECT_EQ(get(live.port(), "/v1/models/other").json()["error"]["code"], "model_not_found");
  EXPECT_EQ(get(live.port(), "/v1/models/stories").json()["id"], "stories");
  EXPECT_EQ(get(live.port(), "/health").json()["status"], "ok");
}

TEST(OpenAiErrors, PromptTooLongReportsTheCounts) {
  LiveServer live;
  const Response answer = post(live.port(), kOpenaiPrompt, Json{{"prompt", std::vector<TokenId>(100000, 5)}}.dump());
  EXPECT_EQ(answer.status, 400);
  const Json error = answer.json()["error"];
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error["n_prompt_tokens"], 100000);
  EXPECT_EQ(error["n_ctx"], live.engine().context());
}

TEST(OpenAiCompletions, ListsOfPromptsAndTokens) {
  LiveServer live;
  const auto tokens = *shipped_model()->encode("One day");
  const Json body = {
      {"prompt", {"Once upon a time", "One day"}}, {"max_tokens", 6}, {"temperature", 0}, {"n", 2}, {"echo", true}};
  const Json json = post(live.port(), kOpenaiPrompt, body.dump()).json();
  ASSERT_EQ(json["choices"].size(), 4u) << json;
  EXPECT_EQ(json["choices"][0]["text"],
            "Once upon a time" + ask_engine(live.engine(), greedy_completion("Once upon a time", 6)).text);
  EXPECT_EQ(json["choices"][2]["text"], "One day" + ask_engine(live.engine(), greedy_completion("One day", 6)).text);
  EXPECT_EQ(json["choices"][1]["text"], json["choices"][0]["text"]);
  const Json by_tokens =
      post(live.port(), kOpenaiPrompt, Json{{"prompt", tokens}, {"max_tokens", 6}, {"temperature", 0}}.dump()).json();
  EXPECT_EQ(by_tokens["choices"][0]["text"], ask_engine(live.engine(), greedy_completion("One day", 6)).text);
}

}  // namespace
}  // namespace millrace
