// Custom tools, whose input is free text or matches a regex or grammar, were refused with 501; OpenAI's agents send one
// for patches by default. No test used this type.
#include <regex>

#include "server/live_server.h"

namespace millrace {
namespace {

const std::string kToolChat = "/v1/chat/completions";

std::string body_with_tools(const std::string& format, const std::string& more = "") {
  return R"({"messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 200, "temperature": 0, "tools": [{"type": "custom", "custom": {"name": "run", "description": "runs it", "format": )" +
         format + R"(}}], "tool_choice": {"type": "custom", "custom": {"name": "run"}})" + more + "}";
}

const std::string kRegex =
    R"({"type": "grammar", "grammar": {"syntax": "regex", "definition": "say \"[abc]{2,4}\"\\n"}})";
const std::string kLark =
    R"({"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: greeting \" \" name // who\n  | \"bye\"\ngreeting: \"hi\"i\nname: \"a\"..\"c\" ~ 2..4\n"}})";

TEST(CustomTools, TheInputMatchesItsFormat) {
  LiveServer live;
  const std::pair<std::string, std::string> forms[] = {{kRegex, "say \"[abc]{2,4}\"\n"},
                                                       {kLark, "([hH][iI] [a-c]{2,4}|bye)"}};
  for (const auto& [format, regex] : forms) {
    const Json answer = post(live.port(), kToolChat, body_with_tools(format)).json();
    ASSERT_TRUE(answer.contains("choices")) << answer;
    const Json& call = answer["choices"][0]["message"]["tool_calls"][0];
    EXPECT_EQ(call["type"], "custom");
    EXPECT_EQ(call["custom"]["name"], "run");
    EXPECT_FALSE(call.contains("function"));
    const std::string input = call["custom"]["input"];
    EXPECT_TRUE(std::regex_match(input, std::regex(regex))) << input;
    std::string streamed;
    for (const std::string& event :
         events_of(post(live.port(), kToolChat, body_with_tools(format, R"(, "stream": true)")).body)) {
      const Json chunk = Json::parse(event, nullptr, false);
      if (!chunk.is_object() || chunk["choices"].empty() || !chunk["choices"][0]["delta"].contains("tool_calls"))
        continue;
      const Json& delta = chunk["choices"][0]["delta"]["tool_calls"][0];
      EXPECT_FALSE(delta.contains("function")) << delta;
      streamed += delta["custom"].value("input", "");
    }
    EXPECT_EQ(streamed, input);
  }
}

TEST(CustomTools, InResponsesAndInLaterTurns) {
  LiveServer live;
  const std::string tools =
      R"("tools": [{"type": "custom", "name": "run", "format": {"type": "grammar", "syntax": "regex", "definition": "[abc]{2}"}}], "temperature": 0, "max_output_tokens": 100, )";
  const Json first = post(live.port(), "/v1/responses",
                          "{" + tools + R"("input": "Once", "tool_choice": {"type": "custom", "name": "run"}})")
                         .json();
  ASSERT_TRUE(first.contains("output")) << first;
  const Json& call = first["output"][0];
  EXPECT_EQ(call["type"], "custom_tool_call");
  EXPECT_EQ(call["status"], "completed");
  EXPECT_TRUE(std::regex_match(call["input"].get<std::string>(), std::regex("[abc]{2}"))) << call;
  const Json next = post(live.port(), "/v1/responses",
                         "{" + tools + R"("tool_choice": "none", "previous_response_id": )" + first["id"].dump() +
                             R"(, "input": [{"type": "custom_tool_call_output", "call_id": )" + call["call_id"].dump() +
                             R"(, "output": "done"}]})")
                        .json();
  EXPECT_EQ(next["object"], "response") << next;
  // The same turns written out have the same prompt.
  const Json spelled =
      post(live.port(), "/v1/responses", "{" + tools + R"("tool_choice": "none", "input": ["type"]})").json();
  EXPECT_EQ(spelled["error"]["param"], "input[0]");
  const Json turns = post(live.port(), "/v1/responses",
                          "{" + tools + R"("tool_choice": "none", "input": [{"role": "user", "content": "Once"}, )" +
                              call.dump() + R"(, {"type": "custom_tool_call_output", "call_id": )" +
                              call["call_id"].dump() + R"(, "output": "done"}]})")
                         .json();
  EXPECT_EQ(turns["usage"]["input_tokens"], next["usage"]["input_tokens"]) << turns;
  const Json chat =
      post(
          live.port(), kToolChat,
          R"({"max_tokens": 1, "messages": [{"role": "user", "content": "Once"}, {"role": "assistant", "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "run", "input": "ab"}}]},
      {"role": "tool", "tool_call_id": "a", "content": "done"}]})")
          .json();
  EXPECT_TRUE(chat.contains("usage")) << chat;
}

TEST(CustomTools, UnsupportedGrammarsAreRefusedByName) {
  LiveServer live;
  const auto lark = [](const std::string& definition) {
    return Json{{"type", "grammar"}, {"grammar", {{"syntax", "lark"}, {"definition", definition}}}}.dump();
  };
  const std::string where = "tools[0].custom.format";
  const std::pair<std::string, std::string> wrong[] = {
      {R"({"type": "free"})", where + ".type"},
      {R"({"type": "grammar", "grammar": {"syntax": "gbnf", "definition": "a"}})", where + ".grammar.syntax"},
      {R"({"type": "grammar", "grammar": {"syntax": "lark"}})", where + ".grammar.definition"},
      {lark("start: \"(\" start \")\" | \"a\""), where + ".grammar.definition"},
      {lark("start: WORD\n%import common.WORD\n%ignore \" \""), where + ".grammar.definition"},
      {lark("start: other"), where + ".grammar.definition"}};
  for (const auto& [format, field] : wrong) {
    const Response answer = post(live.port(), kToolChat, body_with_tools(format));
    EXPECT_EQ(answer.status, 400) << format << answer.body;
    EXPECT_EQ(answer.json()["error"]["param"], field) << answer.body;
  }
  // Forty levels of rules that are each used twice, and deep parentheses.
  std::string doubling = "start: r0\n", deep = "start: " + std::string(5000, '(');
  for (int i = 0; i < 40; ++i)
    doubling += "r" + std::to_string(i) + ": r" + std::to_string(i + 1) + " r" + std::to_string(i + 1) + "\n";
  EXPECT_EQ(post(live.port(), kToolChat, body_with_tools(lark(doubling + "r40: \"a\""))).status, 400);
  EXPECT_EQ(post(live.port(), kToolChat, body_with_tools(lark(deep))).status, 400);
}

}  // namespace
}  // namespace millrace
