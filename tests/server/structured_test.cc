// Structured output and tool calls in every API, against a live server.
#include "server/live_server.h"
#include "text/tools/tool_dialect.h"

namespace millrace {
namespace {

const char* const kPerson =
    R"({"type": "object", "properties": {"name": {"enum": ["Tim", "Lily"]}, "age": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["name", "age"], "additionalProperties": false})";
const std::string kStructuredChat = "/v1/chat/completions";
const std::string kMessages = R"("messages": [{"role": "user", "content": "Once upon a time"}])";

bool is_person(const Json& json) {
  return json.is_object() && json.size() == 2 && (json["name"] == "Tim" || json["name"] == "Lily") &&
         json["age"].is_number_integer() && json["age"] >= 1 && json["age"] <= 9;
}
Json parsed(const Json& text) {
  return text.is_string() ? Json::parse(text.get<std::string>(), nullptr, false) : Json();
}

std::string structured_body(const std::string& more, int tokens = 200) {
  return "{" + kMessages + ", \"max_tokens\": " + std::to_string(tokens) + ", \"temperature\": 0, " + more + "}";
}

TEST(StructuredOutput, EveryFieldThatTakesASchema) {
  LiveServer live;
  const std::string schema = kPerson;
  const std::string fields[] = {
      R"("response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": )" + schema + "}}",
      R"("response_format": {"type": "json_schema", "schema": )" + schema + "}",
      R"("response_format": {"type": "json_object", "schema": )" + schema + "}",
      R"("structured_outputs": {"json": )" + schema + "}",
      R"("guided_json": )" + Json(schema).dump(),
      R"("json_schema": )" + schema};
  for (const std::string& field : fields) {
    const Json answer = post(live.port(), kStructuredChat, structured_body(field)).json();
    EXPECT_TRUE(is_person(parsed(answer["choices"][0]["message"]["content"]))) << field << answer;
    EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  }
  const std::string options = R"(, "stream": false, "options": {"temperature": 0, "num_predict": 200}})";
  EXPECT_TRUE(is_person(parsed(post(live.port(), "/api/chat", "{" + kMessages + ", \"format\": " + schema + options)
                                   .json()["message"]["content"])));
  EXPECT_TRUE(
      is_person(parsed(post(live.port(), "/api/generate", "{\"prompt\": \"Once\", \"format\": " + schema + options)
                           .json()["response"])));
  EXPECT_TRUE(
      is_person(parsed(post(live.port(), "/completion",
                            R"({"prompt": "Once", "temperature": 0, "n_predict": 200, "json_schema": )" + schema + "}")
                           .json()["content"])));
  const Json response =
      post(
          live.port(), "/v1/responses",
          R"({"input": "Once", "temperature": 0, "max_output_tokens": 200, "text": {"format": {"type": "json_schema", "name": "p", "schema": )" +
              schema + "}}}")
          .json();
  EXPECT_TRUE(is_person(parsed(response["output"][0]["content"][0]["text"]))) << response;
}

TEST(StructuredOutput, OtherKindsAndSeveralAnswers) {
  LiveServer live;
  const auto text = [&](const std::string& field) {
    return post(live.port(), kStructuredChat, structured_body(field))
        .json()["choices"][0]["message"]["content"]
        .get<std::string>();
  };
  const std::string chosen = text(R"("structured_outputs": {"choice": ["yes", "no"]})");
  EXPECT_TRUE(chosen == "yes" || chosen == "no") << chosen;
  EXPECT_EQ(text(R"("guided_choice": ["yes", "no"])"), chosen);
  EXPECT_EQ(text(R"("structured_outputs": {"regex": "ab{3}c"})"), "abbbc");
  EXPECT_EQ(text(R"("structured_outputs": {"grammar": "root ::= \"x\" \"y\""})"), "xy");
  EXPECT_EQ(text(R"("grammar": "root ::= \"x\" \"y\"")"), "xy");
  EXPECT_EQ(
      text(R"("response_format": {"type": "structural_tag", "format": {"type": "const_string", "value": "tag"}})"),
      "tag");
  const Json several =
      post(live.port(), kStructuredChat,
           "{" + kMessages + R"(, "max_tokens": 200, "temperature": 1, "seed": 5, "n": 3, "guided_json": )" + kPerson +
               "}")
          .json();
  ASSERT_EQ(several["choices"].size(), 3u) << several;
  for (const Json& choice : several["choices"]) EXPECT_TRUE(is_person(parsed(choice["message"]["content"]))) << choice;
  // The last token of an answer that can only end there has its log-probability too.
  const Json scored =
      post(live.port(), kStructuredChat, structured_body(R"("logprobs": true, "structured_outputs": {"regex": "ab"})"))
          .json();
  std::string joined;
  for (const Json& token : scored["choices"][0]["logprobs"]["content"]) joined += token["token"].get<std::string>();
  EXPECT_EQ(joined, "ab");
}

TEST(StructuredOutput, RunsWithinAMemoryBudget) {
  EngineOptions engine;
  engine.kv_tokens = 4096;
  engine.max_streams = 2;
  auto model = templated_model("", int64_t{2} << 30);
  ASSERT_NE(model, nullptr);
  ServiceOptions service;
  service.stored_response_bytes = 1 << 20;
  LiveServer live(std::move(service), {}, engine, nullptr, model);
  const Json answer =
      post(live.port(), kStructuredChat, structured_body(std::string(R"("guided_json": )") + kPerson)).json();
  EXPECT_TRUE(is_person(parsed(answer["choices"][0]["message"]["content"]))) << answer;
  bool counted = false;
  for (const MemoryUse& use : live.engine().stats().memory) counted |= use.name == "constraints" && use.bytes > 0;
  EXPECT_TRUE(counted);
  std::string many = "root ::= ";  // more than the account holds
  for (int i = 0; i < 4000; ++i)
    many += "\"" + std::to_string(i * 7919) + std::string(40, static_cast<char>('a' + i % 26)) + "\" | ";
  const Response refused =
      post(live.port(), kStructuredChat, "{" + kMessages + ", \"grammar\": " + Json(many + "\"x\"").dump() + "}");
  EXPECT_EQ(refused.status, 400) << refused.body;
  EXPECT_EQ(refused.json()["error"]["param"], "grammar");
}

const std::string kTools =
    std::string(
        R"("tools": [{"type": "function", "function": {"name": "meet", "description": "meets", "parameters": )") +
    kPerson + R"(}},
    {"type": "function", "function": {"name": "leave"}}])";

// The arguments of the calls in a stream, by index, and that its deltas are of the right shape.
std::vector<Json> streamed_calls(const std::string& stream) {
  std::vector<Json> calls;
  for (const std::string& data : events_of(stream)) {
    const Json event = Json::parse(data, nullptr, false);
    if (!event.is_object() || event["choices"].empty() || !event["choices"][0]["delta"].contains("tool_calls"))
      continue;
    const Json& delta = event["choices"][0]["delta"]["tool_calls"][0];
    const auto index = delta["index"].get<size_t>();
    if (delta.contains("id")) {
      EXPECT_EQ(index, calls.size());
      EXPECT_EQ(delta["type"], "function");
      EXPECT_EQ(delta["function"]["arguments"], "");
      calls.push_back({{"id", delta["id"]}, {"name", delta["function"]["name"]}, {"arguments", ""}});
    } else {
      EXPECT_LT(index, calls.size());
      calls[index]["arguments"] =
          calls[index]["arguments"].get<std::string>() + delta["function"]["arguments"].get<std::string>();
    }
  }
  return calls;
}

// Templates that make the model one of each dialect, by their words.
const std::pair<const char*, const char*> kTemplates[] = {
    {"described", ""},
    {"hermes",
     "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}<tool_call>{\"name\": x, \"arguments\": "
     "y}</tool_call>{% endif %}"},
    {"llama",
     "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}ipython {\"name\": x, \"parameters\": y}{% endif "
     "%}"},
    {"mistral", "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}[TOOL_CALLS]{% endif %}"},
    {"mistral_args", "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}[TOOL_CALLS][ARGS]{% endif %}"},
    {"qwen_xml", "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}<tool_call><function=x>{% endif %}"},
    {"glm", "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}<tool_call>x<arg_key>{% endif %}"},
    {"deepseek",
     "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}<｜tool▁call▁begin｜>function```json{% endif %}"},
    {"deepseek_named", "{% for m in messages %}{{ m.content }}{% endfor %}{# <｜tool▁call▁begin｜> #}"},
    {"harmony",
     "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}<|channel|>analysis<|call|>{% endif %}"}};

TEST(ToolCalls, RequiredAndNamedInEveryDialect) {
  for (const auto& [name, chat_template] : kTemplates) {
    SCOPED_TRACE(name);
    LiveServer live({}, {}, {}, nullptr, templated_model(chat_template));
    for (const std::string choice : {R"("tool_choice": {"type": "function", "function": {"name": "meet"}})",
                                     R"("tool_choice": "required", "parallel_tool_calls": false)"}) {
      const std::string fields = kTools + ", " + choice;
      const Json answer = post(live.port(), kStructuredChat, structured_body(fields, 300)).json();
      const Json& message = answer["choices"][0]["message"];
      ASSERT_TRUE(message.contains("tool_calls")) << answer;
      ASSERT_EQ(message["tool_calls"].size(), 1u);
      const Json& function = message["tool_calls"][0]["function"];
      EXPECT_EQ(answer["choices"][0]["finish_reason"], "tool_calls");
      EXPECT_TRUE(message["content"].is_null()) << message;
      if (function["name"] == "meet")
        EXPECT_TRUE(is_person(parsed(function["arguments"]))) << function;
      else
        EXPECT_EQ(parsed(function["arguments"]), Json::object());
      const auto streamed =
          streamed_calls(post(live.port(), kStructuredChat, structured_body(fields + ", \"stream\": true", 300)).body);
      ASSERT_EQ(streamed.size(), 1u);
      EXPECT_EQ(streamed[0]["name"], function["name"]);
      EXPECT_EQ(streamed[0]["arguments"], function["arguments"]);
    }
  }
}

// Every answer has frames. This model, held to them, thinks until it is cut; no client sees the frame's header.
TEST(ToolCalls, ChannelsAreSeparatedWithoutTools) {
  LiveServer live({}, {}, {}, nullptr, templated_model(std::string(std::end(kTemplates)[-1].second)));
  const Json plain = post(live.port(), kStructuredChat, structured_body("\"top_k\": 40", 6)).json();
  EXPECT_FALSE(plain["choices"][0]["message"]["content"].get<std::string>().empty()) << plain;
  const std::string fields = R"("structured_outputs": {"regex": "[0-9]{3}"})";
  const Json held = post(live.port(), kStructuredChat, structured_body(fields, 60)).json();
  const std::string thought = held["choices"][0]["message"].value("reasoning_content", "");
  EXPECT_FALSE(thought.empty()) << held;
  EXPECT_EQ(thought.find("<|"), std::string::npos) << held;
  EXPECT_EQ(held["choices"][0]["message"]["content"], "") << held;
  const Json joined =
      post(live.port(), kStructuredChat, structured_body(fields + R"(, "reasoning_format": "none")", 60)).json();
  EXPECT_EQ(joined["choices"][0]["message"]["content"], thought) << joined;
}

TEST(ToolCalls, AutoLeavesTextAndHistoryGoesToThePrompt) {
  LiveServer live;
  const Json plain =
      post(live.port(), kStructuredChat, structured_body(kTools + R"(, "tool_choice": "none")", 6)).json();
  EXPECT_EQ(plain["choices"][0]["message"]["content"],
            post(live.port(), kStructuredChat, structured_body("\"top_k\": 40", 6))
                .json()["choices"][0]["message"]["content"]);
  const Json automatic = post(live.port(), kStructuredChat, structured_body(kTools, 6)).json();
  EXPECT_EQ(automatic["choices"][0]["finish_reason"], "length") << automatic;
  EXPECT_GT(automatic["usage"]["prompt_tokens"], plain["usage"]["prompt_tokens"]);  // the tools are in the prompt
  const std::string history =
      R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function",
      "function": {"name": "meet", "arguments": "{\"name\": \"Tim\"}"}}]}, {"role": "tool", "tool_call_id": "a", "content": "Hello"}], "max_tokens": 3})";
  EXPECT_EQ(post(live.port(), kStructuredChat, history).status, 200);
  const Json counted = post(live.port(), "/v1/chat/completions/input_tokens", history).json();
  EXPECT_GT(counted["input_tokens"], 5) << counted;
}

TEST(ToolCalls, AnthropicAndOllama) {
  LiveServer live;
  const std::string tools = std::string(R"("tools": [{"name": "meet", "input_schema": )") + kPerson + "}]";
  const std::string body =
      "{" + kMessages + R"(, "max_tokens": 300, "temperature": 0, "tool_choice": {"type": "tool", "name": "meet"}, )" +
      tools;
  const Json whole = post(live.port(), "/v1/messages", body + "}").json();
  EXPECT_EQ(whole["stop_reason"], "tool_use") << whole;
  EXPECT_EQ(whole["content"][0]["type"], "tool_use");
  EXPECT_TRUE(is_person(whole["content"][0]["input"])) << whole;
  std::string input;
  std::vector<std::string> types;
  for (const std::string& data : events_of(post(live.port(), "/v1/messages", body + ", \"stream\": true}").body)) {
    const Json event = Json::parse(data);
    types.push_back(event["type"]);
    if (event["type"] == "content_block_start") EXPECT_EQ(event["content_block"]["type"], "tool_use");
    if (event["type"] == "content_block_delta") input += event["delta"]["partial_json"].get<std::string>();
    if (event["type"] == "message_delta") EXPECT_EQ(event["delta"]["stop_reason"], "tool_use");
  }
  EXPECT_EQ(Json::parse(input, nullptr, false), whole["content"][0]["input"]);
  EXPECT_EQ(types.back(), "message_stop");
  const std::string answered =
      R"({"max_tokens": 3, "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "meet", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": [{"type": "text", "text": "Hello"}]}, {"type": "text", "text": "And?"}]}], )" +
      tools + "}";
  EXPECT_EQ(post(live.port(), "/v1/messages", answered).status, 200);
  // Ollama has no tool_choice: a template that writes the call's beginning into the prompt is not needed to read tools.
  EXPECT_EQ(post(live.port(), "/api/chat",
                 "{" + kMessages + ", \"stream\": false, \"options\": {\"num_predict\": 3}, " + kTools + "}")
                .status,
            200);
  EXPECT_EQ(post(live.port(), "/api/chat", "{" + kMessages + ", \"tools\": [{\"function\": {}}]}").status, 400);
}

const char* const kThinker =
    "{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking %}<think>\n{% endif %}{# </think> #}";
const std::string kThought = R"("grammar": "root ::= \"<think>so it is</think>yes\"")";

TEST(Thinking, IsSplitFromTheAnswer) {
  LiveServer live({}, {}, {}, nullptr, templated_model(kThinker));
  const auto message = [&](const std::string& more) {
    return post(live.port(), kStructuredChat, structured_body(kThought + more)).json()["choices"][0]["message"];
  };
  EXPECT_EQ(message("")["content"], "yes");
  EXPECT_EQ(message("")["reasoning_content"], "so it is");
  EXPECT_EQ(message(R"(, "include_reasoning": true)")["reasoning"], "so it is");
  EXPECT_FALSE(message(R"(, "include_reasoning": false)").contains("reasoning_content"));
  EXPECT_EQ(message(R"(, "reasoning_format": "none")")["content"], "<think>so it is</think>yes");
  std::string thought, said;
  for (const std::string& data :
       events_of(post(live.port(), kStructuredChat, structured_body(kThought + R"(, "stream": true)")).body)) {
    const Json event = Json::parse(data, nullptr, false);
    if (!event.is_object()) continue;
    const Json& delta = event["choices"][0]["delta"];
    if (delta.contains("reasoning_content")) thought += delta["reasoning_content"].get<std::string>();
    if (delta.contains("content")) said += delta["content"].get<std::string>();
  }
  EXPECT_EQ(thought, "so it is");
  EXPECT_EQ(said, "yes");
  // The prompt's own mark: all of what comes is thinking until it is closed.
  const Json begun =
      post(live.port(), kStructuredChat,
           structured_body(
               R"("chat_template_kwargs": {"enable_thinking": true}, "grammar": "root ::= \"so</think>yes\"")"))
          .json()["choices"][0]["message"];
  EXPECT_EQ(begun["reasoning_content"], "so");
  EXPECT_EQ(begun["content"], "yes");
  const Json cut = post(live.port(), kStructuredChat,
                        structured_body(R"("reasoning_effort": "high", "structured_outputs": {"choice": ["yes"]})", 5))
                       .json();
  EXPECT_FALSE(cut["choices"][0]["message"]["reasoning_content"].get<std::string>().empty())
      << cut;  // the choice is for what comes behind
  EXPECT_GE(cut["usage"]["completion_tokens_details"]["reasoning_tokens"], 1);
}

TEST(Thinking, EndsWithItsBudget) {
  LiveServer live({}, {}, {}, nullptr, templated_model(kThinker));
  const std::string thinks = R"("reasoning_effort": "high", "structured_outputs": {"choice": ["yes"]})";
  const Json free = post(live.port(), kStructuredChat, structured_body(thinks, 40)).json();
  EXPECT_GT(free["usage"]["completion_tokens_details"]["reasoning_tokens"], 30)
      << "white space at its beginning does not count";
  const Json held =
      post(live.port(), kStructuredChat, structured_body(thinks + R"(, "thinking_token_budget": 5)", 40)).json();
  EXPECT_EQ(held["choices"][0]["message"]["content"], "yes") << held;
  EXPECT_LE(held["usage"]["completion_tokens_details"]["reasoning_tokens"], 5) << held;
  const std::string begun = free["choices"][0]["message"]["reasoning_content"],
                    kept = held["choices"][0]["message"]["reasoning_content"];
  ASSERT_FALSE(kept.empty());
  EXPECT_TRUE(begun.starts_with(kept)) << kept;
  const Json none = post(live.port(), kStructuredChat, structured_body(thinks + R"(, "thinking_token_budget": 0)", 40))
                        .json()["choices"][0]["message"];
  EXPECT_EQ(none["content"], "yes");
  EXPECT_FALSE(none.contains("reasoning_content")) << none;
  const auto messages = [&](const char* budget) {
    return post(live.port(), "/v1/messages",
                "{" + kMessages +
                    R"(, "max_tokens": 40, "temperature": 0, "thinking": {"type": "enabled", "budget_tokens": )" +
                    budget + "}}");
  };
  const Json other = messages("5").json();
  EXPECT_EQ(other["content"][0]["thinking"], kept) << other;
  EXPECT_EQ(other["content"][1]["type"], "text") << other;
  EXPECT_EQ(messages("-1").status, 400);
  EXPECT_EQ(messages("\"much\"").status, 400);
}

TEST(Thinking, InTheOtherApis) {
  LiveServer live({}, {}, {}, nullptr, templated_model(kThinker));
  const std::string sampling = R"(, "max_tokens": 6, "temperature": 0)";
  const Json message = post(live.port(), "/v1/messages",
                            "{" + kMessages + sampling + R"(, "thinking": {"type": "enabled", "budget_tokens": 1024}})")
                           .json();
  EXPECT_EQ(message["content"][0]["type"], "thinking") << message;
  std::vector<std::string> deltas;
  for (const std::string& data :
       events_of(post(live.port(), "/v1/messages",
                      "{" + kMessages + sampling +
                          R"(, "stream": true, "thinking": {"type": "enabled", "budget_tokens": 1024}})")
                     .body)) {
    const Json event = Json::parse(data);
    if (event["type"] == "content_block_delta") deltas.push_back(event["delta"]["type"]);
  }
  ASSERT_GE(deltas.size(), 2u);
  EXPECT_EQ(deltas.front(), "thinking_delta");
  EXPECT_EQ(deltas.back(), "signature_delta");
  const Json chat =
      post(live.port(), "/api/chat",
           "{" + kMessages + R"(, "think": true, "stream": false, "options": {"num_predict": 6, "temperature": 0}})")
          .json();
  EXPECT_EQ(chat["message"]["thinking"], message["content"][0]["thinking"]) << chat;
  const Json response =
      post(live.port(), "/v1/responses",
           R"({"input": "Once upon a time", "temperature": 0, "max_output_tokens": 6, "reasoning": {"effort": "low"}})")
          .json();
  EXPECT_EQ(response["output"][0]["type"], "reasoning") << response;
  EXPECT_EQ(response["output"][0]["content"][0]["text"], message["content"][0]["thinking"]);
}

TEST(VllmFields, AnIdASaltAndBeams) {
  LiveServer live;
  const Json named = post(live.port(), kStructuredChat, structured_body(R"("request_id": "mine")", 2)).json();
  EXPECT_EQ(named["id"], "chatcmpl-mine");
  EXPECT_EQ(named["timings"]["predicted_n"], 2) << named;
  const auto cached = [&](const std::string& fields) {
    const std::string words =
        "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
        "eighteen nineteen twenty ";
    return post(live.port(), "/v1/completions", R"({"prompt": ")" + words + R"(", "max_tokens": 1)" + fields + "}")
        .json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        .get<int64_t>();
  };
  EXPECT_EQ(cached(""), 0);
  EXPECT_GT(cached(""), 0);
  EXPECT_EQ(cached(R"(, "cache_salt": "a")"), 0);
  EXPECT_GT(cached(R"(, "cache_salt": "a")"), 0);
  EXPECT_EQ(cached(R"(, "cache_salt": "b")"), 0);
  const Json beams =
      post(live.port(), kStructuredChat, structured_body(R"("use_beam_search": true, "n": 3, "length_penalty": 1)", 6))
          .json();
  ASSERT_EQ(beams["choices"].size(), 3u) << beams;
  EXPECT_NE(beams["choices"][0]["message"]["content"], beams["choices"][1]["message"]["content"]);
}

TEST(VllmFields, TakeEffect) {
  LiveServer live;
  const Json plain = post(live.port(), kStructuredChat, structured_body(R"("return_token_ids": true)", 8)).json();
  const auto ids = plain["choices"][0]["token_ids"].get<std::vector<TokenId>>();
  ASSERT_EQ(ids.size(), 8u) << plain;
  EXPECT_EQ(plain["prompt_token_ids"].size(), plain["usage"]["prompt_tokens"]);
  const Json stopped =
      post(live.port(), kStructuredChat,
           structured_body("\"return_token_ids\": true, \"stop_token_ids\": [" + std::to_string(ids[4]) + "]", 8))
          .json()["choices"][0];
  EXPECT_EQ(stopped["finish_reason"], "stop");
  EXPECT_EQ(stopped["stop_reason"], ids[4]);
  EXPECT_LE(stopped["token_ids"].size(), 4u);
  const std::string text = plain["choices"][0]["message"]["content"], stop = text.substr(text.size() / 2, 3);
  const Json kept = post(live.port(), kStructuredChat,
                         structured_body("\"include_stop_str_in_output\": true, \"stop\": " + Json(stop).dump(), 8))
                        .json()["choices"][0];
  EXPECT_TRUE(kept["message"]["content"].get<std::string>().ends_with(stop)) << kept;
  EXPECT_EQ(kept["stop_reason"], stop);
  const std::string word = text.substr(0, text.find(' ', 1));
  const Json without =
      post(live.port(), kStructuredChat,
           structured_body("\"bad_words\": " + Json::array({word.substr(word.find_first_not_of(' '))}).dump(), 8))
          .json();
  EXPECT_FALSE(without["choices"][0]["message"]["content"].get<std::string>().starts_with(word)) << without;
  const Response cut = post(live.port(), kStructuredChat, structured_body(R"("truncate_prompt_tokens": 2)", 2));
  EXPECT_EQ(cut.json()["usage"]["prompt_tokens"], 2) << cut.body;
  EXPECT_EQ(cut.json()["usage"]["prompt_tokens_details"]["truncated_tokens"].get<int64_t>(),
            plain["usage"]["prompt_tokens"].get<int64_t>() - 2);
  EXPECT_TRUE(cut.headers.contains("millrace-truncated-tokens"));
  const Json scored = post(live.port(), kStructuredChat, structured_body(R"("prompt_logprobs": 2)", 1)).json();
  ASSERT_EQ(scored["prompt_logprobs"].size(), scored["usage"]["prompt_tokens"]) << scored;
  EXPECT_TRUE(scored["prompt_logprobs"][0].is_null());
  EXPECT_GE(scored["prompt_logprobs"][1].size(), 2u);
  int64_t counted = 0;
  for (const std::string& data : events_of(
           post(live.port(), kStructuredChat,
                structured_body(
                    R"("stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true})", 4))
               .body)) {
    const Json event = Json::parse(data, nullptr, false);
    if (!event.is_object()) continue;
    EXPECT_GE(event["usage"]["completion_tokens"], counted);
    counted = event["usage"]["completion_tokens"];
  }
  EXPECT_EQ(counted, 4);
}

}  // namespace
}  // namespace millrace
