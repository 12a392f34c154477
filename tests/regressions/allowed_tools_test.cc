// tool_choice {"type": "allowed_tools"}, which lets agents keep their prompt and change which tools may be called, was
// refused with 501, and so were the older `functions` and `function_call`. The existing tests asserted these refusals.
#include "server/live_server.h"

namespace millrace {
namespace {

const std::string kChat = "/v1/chat/completions";

std::string function(const std::string& name) {
  return R"({"name": ")" + name +
         R"(", "parameters": {"type": "object", "properties": {"age": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["age"]}})";
}
std::string tool(const std::string& name) { return R"({"type": "function", "function": )" + function(name) + "}"; }
std::string chat_body(const std::string& more) {
  return R"({"messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 200, "temperature": 0, )" +
         more + "}";
}

TEST(AllowedTools, RestrictCallsWithoutChangingThePrompt) {
  LiveServer live;
  const std::string tools =
      R"("tools": [)" + tool("meet") + ", " + tool("leave") + R"(], "parallel_tool_calls": false, )";
  const auto choice = [](const std::string& mode, const std::string& name) {
    return R"("tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": ")" + mode +
           R"(", "tools": [{"type": "function", "function": {"name": ")" + name + R"("}}]}})";
  };
  const Json any = post(live.port(), kChat, chat_body(tools + R"("tool_choice": "required")")).json();
  for (const std::string name : {"meet", "leave"}) {
    const Json answer = post(live.port(), kChat, chat_body(tools + choice("required", name))).json();
    ASSERT_TRUE(answer.contains("choices")) << answer;
    EXPECT_EQ(answer["choices"][0]["finish_reason"], "tool_calls");
    for (const Json& call : answer["choices"][0]["message"]["tool_calls"]) EXPECT_EQ(call["function"]["name"], name);
    EXPECT_EQ(answer["usage"]["prompt_tokens"], any["usage"]["prompt_tokens"]);
    const Json flat =
        post(
            live.port(), "/v1/responses",
            R"({"input": "Once", "temperature": 0, "max_output_tokens": 200, "parallel_tool_calls": false, "tools": [{"type": "function", "name": "meet"}, {"type": "function", "name": "leave"}],
      "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": ")" +
                name + R"("}]}})")
            .json();
    ASSERT_TRUE(flat.contains("output")) << flat;
    EXPECT_EQ(flat["output"][0]["name"], name);
  }
  EXPECT_EQ(post(live.port(), kChat, chat_body(tools + choice("auto", "meet"))).status, 200);
  for (const std::string& wrong :
       {choice("sometimes", "meet"), choice("auto", "unknown"),
        std::string(R"("tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}})")}) {
    const Response answer = post(live.port(), kChat, chat_body(tools + wrong));
    EXPECT_EQ(answer.status, 400) << wrong << answer.body;
    EXPECT_TRUE(answer.json()["error"]["param"].get<std::string>().starts_with("tool_choice")) << answer.body;
  }
}

TEST(OldFunctions, AreCalledInTheOldFormat) {
  LiveServer live;
  const std::string functions =
      R"("functions": [)" + function("meet") + ", " + function("leave") + R"(], "function_call": {"name": "leave"})";
  const Json answer = post(live.port(), kChat, chat_body(functions)).json();
  ASSERT_TRUE(answer.contains("choices")) << answer;
  const Json& choice = answer["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "function_call");
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
  ASSERT_TRUE(choice["message"].contains("function_call")) << choice;
  EXPECT_EQ(choice["message"]["function_call"]["name"], "leave");
  EXPECT_TRUE(
      Json::parse(choice["message"]["function_call"]["arguments"].get<std::string>())["age"].is_number_integer());
  std::string name, arguments, finish;
  for (const std::string& event :
       events_of(post(live.port(), kChat, chat_body(R"("stream": true, )" + functions)).body)) {
    const Json chunk = Json::parse(event, nullptr, false);
    if (!chunk.is_object() || chunk["choices"].empty()) continue;
    const Json& delta = chunk["choices"][0]["delta"];
    EXPECT_FALSE(delta.contains("tool_calls"));
    if (delta.contains("function_call")) {
      name += delta["function_call"].value("name", "");
      arguments += delta["function_call"].value("arguments", "");
    }
    if (chunk["choices"][0]["finish_reason"].is_string()) finish = chunk["choices"][0]["finish_reason"];
  }
  EXPECT_EQ(name, "leave");
  EXPECT_EQ(arguments, choice["message"]["function_call"]["arguments"].get<std::string>());
  EXPECT_EQ(finish, "function_call");
  // Its result is put into the prompt like a tool's.
  const Json old =
      post(
          live.port(), kChat,
          R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null, "function_call": {"name": "leave", "arguments": "{}"}},
                                              {"role": "function", "name": "leave", "content": "gone"}]})")
          .json();
  const Json today = post(live.port(), kChat, R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "call_0", "type": "function", "function": {"name": "leave", "arguments": "{}"}}]},
      {"role": "tool", "name": "leave", "tool_call_id": "call_0", "content": "gone"}]})")
                         .json();
  ASSERT_TRUE(old.contains("usage")) << old;
  EXPECT_EQ(old["usage"]["prompt_tokens"], today["usage"]["prompt_tokens"]);
  EXPECT_EQ(post(live.port(), kChat, chat_body(R"("function_call": {"name": "leave"})")).json()["error"]["param"],
            "function_call");
  EXPECT_EQ(post(live.port(), kChat,
                 chat_body(R"("functions": [)" + function("meet") + R"(], "function_call": {"name": "leave"})"))
                .json()["error"]["param"],
            "function_call");
}

}  // namespace
}  // namespace millrace
