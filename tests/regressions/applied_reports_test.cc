// Reports that were made of something else than what applies: usage at the beginning of a stream, /props, the settings
// of an answer. And a required call next to an output format, which was refused.
#include "server/live_server.h"

namespace millrace {
namespace {

const std::string kWords =
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen ";

TEST(AppliedReports, StreamsBeginWithTheCachedTokens) {
  LiveServer live;
  const std::string body =
      R"({"messages": [{"role": "user", "content": ")" + kWords + R"("}], "max_tokens": 3, "stream": true)";
  for (const bool again : {false, true}) {
    const auto events = events_of(post(live.port(), "/v1/messages", body + "}").body);
    const Json start = Json::parse(events.at(0))["message"]["usage"],
               last = Json::parse(events.at(events.size() - 2))["usage"];
    EXPECT_EQ(start["cache_read_input_tokens"], last["cache_read_input_tokens"]) << again;
    EXPECT_EQ(start["input_tokens"], last["input_tokens"]) << again;
    EXPECT_EQ(start["cache_read_input_tokens"] > 0, again) << start;
  }
  for (const std::string& data :
       events_of(post(live.port(), "/v1/chat/completions",
                      body + R"(, "stream_options": {"include_usage": true, "continuous_usage_stats": true}})")
                     .body)) {
    const Json event = Json::parse(data, nullptr, false);
    if (event.is_object()) {
      EXPECT_GT(event["usage"]["prompt_tokens_details"]["cached_tokens"], 0) << event;
    }
  }
}

TEST(AppliedReports, PropsAndSettingsAreTheOnesThatApply) {
  ServiceOptions service;
  service.sampling.temperature = 0.25;
  service.sampling.top_k = 7;
  service.sampling.repetition_penalty = 1.5;
  LiveServer live(service);
  const Json props = get(live.port(), "/props").json()["default_generation_settings"]["params"];
  const Json applied = post(live.port(), "/completion", R"({"prompt": "One day", "n_predict": 1, "top_p": 0.5})")
                           .json()["generation_settings"];
  for (const Json& settings : {props, applied}) {
    EXPECT_EQ(settings["temperature"], 0.25) << settings;
    EXPECT_EQ(settings["top_k"], 7) << settings;
    EXPECT_EQ(settings["repeat_penalty"], 1.5) << settings;
  }
  EXPECT_EQ(applied["top_p"], 0.5) << applied;
  EXPECT_EQ(applied["n_predict"], 1) << applied;
}

TEST(AppliedReports, ARequiredCallNextToAFormat) {
  LiveServer live;
  const std::string function = R"("name": "f", "parameters": {"type": "object", "properties": {}})";
  const std::string user = R"("messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "max_tokens": 60)";
  const std::string schema = R"({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})";
  const std::string chat =
      R"(, "tools": [{"type": "function", "function": {)" + function +
      R"(}}], "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": )" + schema + "}}";
  for (const std::string choice : {R"("required")", R"({"type": "function", "function": {"name": "f"}})"}) {
    const Json answer =
        post(live.port(), "/v1/chat/completions", "{" + user + chat + R"(, "tool_choice": )" + choice + "}").json();
    ASSERT_TRUE(answer.contains("choices")) << answer;
    EXPECT_EQ(answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "f") << answer;
  }
  const Json response =
      post(
          live.port(), "/v1/responses",
          R"({"input": "Hi", "temperature": 0, "max_output_tokens": 60, "tool_choice": "required", "tools": [{"type": "function", )" +
              function + R"(}], "text": {"format": {"type": "json_schema", "name": "s", "schema": )" + schema + "}}}")
          .json();
  EXPECT_EQ(response["output"].back()["type"], "function_call") << response;
  const Json message =
      post(live.port(), "/v1/messages",
           "{" + user +
               R"(, "tool_choice": {"type": "any"}, "tools": [{"name": "f", "input_schema": {"type": "object"}}], )" +
               R"("output_config": {"format": {"type": "json_schema", "schema": )" + schema + "}}}")
          .json();
  EXPECT_EQ(message["content"].back()["type"], "tool_use") << message;
}

}  // namespace
}  // namespace millrace
