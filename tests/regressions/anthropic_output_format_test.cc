// Anthropic's output_config.format, which its SDKs send for structured output, was silently ignored: the answer had
// status 200 and was not constrained. The tests covered only the ways in which OpenAI's clients send a schema.
#include "server/live_server.h"

namespace millrace {
namespace {

const std::string kSchema =
    R"({"type": "object", "properties": {"name": {"enum": ["Tim", "Lily"]}, "age": {"type": "integer", "minimum": 1, "maximum": 9}},
  "required": ["name", "age"], "additionalProperties": false})";

std::string body_with_format(const std::string& more) {
  return R"({"max_tokens": 200, "temperature": 0, "messages": [{"role": "user", "content": "Once upon a time"}], )" +
         more + "}";
}

bool is_person(const Json& json) {
  return json.is_object() && json.size() == 2 && (json["name"] == "Tim" || json["name"] == "Lily") &&
         json["age"].is_number_integer() && json["age"] >= 1 && json["age"] <= 9;
}

TEST(AnthropicOutputFormat, TheTextMatchesTheSchema) {
  LiveServer live;
  const std::string format = R"({"type": "json_schema", "schema": )" + kSchema + "}";
  for (const std::string& field : {R"("output_config": {"format": )" + format + "}", R"("output_format": )" + format}) {
    const Json answer = post(live.port(), "/v1/messages", body_with_format(field)).json();
    ASSERT_TRUE(answer.contains("content")) << answer;
    EXPECT_EQ(answer["stop_reason"], "end_turn") << answer;
    EXPECT_TRUE(is_person(Json::parse(answer["content"][0]["text"].get<std::string>(), nullptr, false))) << answer;
  }
  std::string text;
  for (const std::string& event : events_of(
           post(live.port(), "/v1/messages",
                body_with_format(R"("stream": true, "output_config": {"effort": "low", "format": )" + format + "}"))
               .body)) {
    const Json json = Json::parse(event, nullptr, false);
    if (json["type"] == "content_block_delta") text += json["delta"]["text"].get<std::string>();
  }
  EXPECT_TRUE(is_person(Json::parse(text, nullptr, false))) << text;
}

TEST(AnthropicOutputFormat, ErrorsNameTheField) {
  LiveServer live;
  const std::pair<std::string, std::string> wrong[] = {
      {R"("output_config": {"format": {"type": "text"}})", "output_config.format.type"},
      {R"("output_config": {"format": {"type": "json_schema"}})", "output_config.format.schema"},
      {R"("output_config": {"format": "json"})", "output_config.format"},
      {R"("output_config": {"effort": "much"})", "output_config.effort"},
      {R"("output_config": {"task_budget": {"type": "tokens", "total": 9}})", "output_config.task_budget"},
      {R"("thinking": {"type": "enabled", "budget_tokens": 5, "display": "none"})", "thinking.display"},
      {R"("tools": [{"name": "a", "input_schema": {}, "defer_loading": true}])", "tools[0].defer_loading"},
      {R"("container": "box")", "container"},
      {R"("mcp_servers": [{"type": "url"}])", "mcp_servers"}};
  for (const auto& [field, name] : wrong) {
    const Response answer = post(live.port(), "/v1/messages", body_with_format(field));
    EXPECT_EQ(answer.status, 400) << field;
    EXPECT_TRUE(answer.json()["error"]["message"].get<std::string>().starts_with(name + ": ")) << field << answer.body;
  }
}

}  // namespace
}  // namespace millrace
