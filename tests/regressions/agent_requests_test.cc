// Requests of Codex and Claude Code, in the shapes that they send: tools in namespaces, hosted tools, compaction, and a
// system prompt whose first line changes with each request.
#include "server/live_server.h"

namespace millrace {
namespace {

const char* kCallable =
    "{# tools <tool_call> \"arguments\" #}{{ tools | tojson }}{% for m in messages %}{{ m.content }}"
    "{% if m.tool_calls %}{{ m.tool_calls[0].function.name }}{% endif %}{% endfor %}";

Json codex_request() {
  return Json::parse(R"({
    "model": "stories", "instructions": "You are a coding agent.", "stream": false, "store": false,
    "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix it."}]}],
    "tools": [
      {"type": "function", "name": "exec_command", "description": "Runs a command.", "strict": false,
       "parameters": {"type": "object", "properties": {"cmd": {"type": "string", "maxLength": 4}}, "required": ["cmd"]}},
      {"type": "web_search", "external_web_access": true},
      {"type": "image_generation", "output_format": "png"},
      {"type": "namespace", "name": "mcp__files", "description": "Files.", "tools": [
        {"type": "function", "name": "read__all", "description": "Reads.", "strict": false,
         "parameters": {"type": "object", "properties": {}}}]}],
    "tool_choice": "auto", "parallel_tool_calls": false, "reasoning": {"effort": "medium", "summary": "auto"},
    "include": ["reasoning.encrypted_content"], "prompt_cache_key": "a", "text": {"verbosity": "low"},
    "client_metadata": {"x": "y"}, "max_output_tokens": 60, "temperature": 0})");
}

TEST(AgentRequests, ToolsOfANamespaceAreAnsweredApart) {
  LiveServer live({}, {}, {}, nullptr, templated_model(kCallable));
  Json body = codex_request();
  EXPECT_EQ(post(live.port(), "/v1/responses", body.dump()).status, 200);
  body["tool_choice"] = {{"type", "function"}, {"name", "read__all"}, {"namespace", "mcp__files"}};
  body["store"] = true;
  const Json answer = post(live.port(), "/v1/responses", body.dump()).json();
  ASSERT_TRUE(answer.contains("output")) << answer;
  const Json call = answer["output"].back();
  EXPECT_EQ(call["type"], "function_call") << answer;
  EXPECT_EQ(call["name"], "read__all") << "not split at the first separator";
  EXPECT_EQ(call["namespace"], "mcp__files");
  ASSERT_EQ(answer["millrace"]["dropped"].size(), 2u) << answer;
  EXPECT_NE(answer["millrace"]["dropped"][0].get<std::string>().find("web_search"), std::string::npos) << answer;
  // A stored response replays the same item, and the call is sent back with its result.
  const std::string replayed =
      get(live.port(), "/v1/responses/" + answer["id"].get<std::string>() + "?stream=true").body;
  EXPECT_NE(replayed.find(R"("name":"read__all","namespace":"mcp__files")"), std::string::npos) << replayed;
  Json next = codex_request();
  next["input"].push_back(call);
  next["input"].push_back({{"type", "function_call_output"}, {"call_id", call["call_id"]}, {"output", "text"}});
  EXPECT_EQ(post(live.port(), "/v1/responses", next.dump()).status, 200);
  const auto tokens = [&](const Json& request) {
    Json counted = request;
    return post(live.port(), "/v1/responses/input_tokens", counted.dump()).json()["input_tokens"];
  };
  EXPECT_GT(tokens(next), tokens(codex_request()));
}

TEST(AgentRequests, StreamedCallsNameTheirNamespace) {
  LiveServer live({}, {}, {}, nullptr, templated_model(kCallable));
  Json body = codex_request();
  body["tool_choice"] = {{"type", "function"}, {"name", "read__all"}, {"namespace", "mcp__files"}};
  body["stream"] = true;
  int named = 0;
  for (const std::string& data : events_of(post(live.port(), "/v1/responses", body.dump()).body)) {
    const Json event = Json::parse(data);
    if (!event.contains("item") || event["item"]["type"] != "function_call") continue;
    EXPECT_EQ(event["item"]["namespace"], "mcp__files") << event;
    ++named;
  }
  EXPECT_EQ(named, 2);
}

TEST(AgentRequests, AHostedToolCannotBeDemanded) {
  LiveServer live;
  Json body = codex_request();
  body["tool_choice"] = {{"type", "web_search"}};
  EXPECT_EQ(post(live.port(), "/v1/responses", body.dump()).status, 400);
  body["tools"] = Json::array({Json{{"type", "web_search"}}});
  body["tool_choice"] = "required";
  EXPECT_EQ(post(live.port(), "/v1/responses", body.dump()).status, 400);
}

TEST(AgentRequests, CompactionKeepsTheUsersMessages) {
  LiveServer live;
  Json body = {{"model", "stories"},
               {"instructions", "You are a coding agent."},
               {"input",
                {{{"type", "message"}, {"role", "user"}, {"content", "Fix it."}},
                 {{"type", "message"}, {"role", "assistant"}, {"content", "I did."}},
                 {{"type", "message"}, {"role", "user"}, {"content", "And that?"}}}},
               {"tools", codex_request()["tools"]},
               {"parallel_tool_calls", true},
               {"max_output_tokens", 8},
               {"temperature", 0}};
  const Response answer = post(live.port(), "/v1/responses/compact", body.dump());
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json output = answer.json()["output"];
  ASSERT_EQ(output.size(), 3u) << answer.body;
  EXPECT_EQ(output[0]["role"], "user");
  EXPECT_EQ(output[1]["content"][0]["text"], "And that?") << output;
  EXPECT_EQ(output[2]["type"], "compaction");
  ASSERT_FALSE(output[2]["encrypted_content"].get<std::string>().empty());
  const Json again = post(live.port(), "/v1/responses/compact", body.dump()).json()["output"];
  EXPECT_EQ(again[2]["encrypted_content"], output[2]["encrypted_content"]) << "temperature: 0 was ignored";
  Json next = codex_request();
  next["input"] = output;
  EXPECT_EQ(post(live.port(), "/v1/responses", next.dump()).status, 200);
}

TEST(AgentRequests, TheBillingLineIsNoPartOfThePrompt) {
  LiveServer live;
  const auto answer = [&](const Json& system) {
    const Json body = {
        {"system", system}, {"messages", {{{"role", "user"}, {"content", "One day"}}}}, {"max_tokens", 1}};
    return post(live.port(), "/v1/messages", body.dump()).json();
  };
  const std::string words = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen ";
  const auto blocks = [&](const std::string& hash) {
    return Json::array(
        {Json{{"type", "text"}, {"text", "x-anthropic-billing-header: cc_version=2.1; cch=" + hash + ";"}},
         Json{{"type", "text"}, {"text", words + words}}});
  };
  const Json first = answer(blocks("a1b2c")), second = answer(blocks("ffffff"));
  EXPECT_GT(second["usage"]["cache_read_input_tokens"], 0) << second;
  EXPECT_EQ(first["millrace"]["dropped"].size(), 1u) << first;
  const Json text = answer("x-anthropic-billing-header: cch=1;\n" + words + words), plain = answer(words + words);
  EXPECT_EQ(text["usage"]["input_tokens"].get<int64_t>() + text["usage"]["cache_read_input_tokens"].get<int64_t>(),
            plain["usage"]["input_tokens"].get<int64_t>() + plain["usage"]["cache_read_input_tokens"].get<int64_t>());
  EXPECT_FALSE(plain.contains("millrace") && plain["millrace"].contains("dropped")) << plain;
}

}  // namespace
}  // namespace millrace
