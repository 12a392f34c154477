// /v1/responses against a live server: the order and format of its events, and stored responses.
#include "server/live_server.h"

namespace millrace {
namespace {

const std::string kPath = "/v1/responses";

Response forget(int port, const std::string& id) {
  Client client(port);
  client.get(kPath + "/" + id, "", "DELETE");
  return client.response();
}

TEST(Responses, EventsInTheirOrder) {
  LiveServer live;
  const std::string body = R"({"input": "Once upon a time", "max_output_tokens": 4, "temperature": 0)";
  const Json whole = post(live.port(), kPath, body + "}").json();
  EXPECT_EQ(whole["object"], "response") << whole;
  EXPECT_EQ(whole["status"], "incomplete");
  EXPECT_EQ(whole["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(whole["usage"]["output_tokens"], 4);
  std::vector<std::string> types;
  std::string text;
  int64_t number = 0;
  Json last;
  for (const std::string& data : events_of(post(live.port(), kPath, body + R"(, "stream": true})").body)) {
    last = Json::parse(data, nullptr, false);
    ASSERT_TRUE(last.is_object()) << data;
    EXPECT_EQ(last["sequence_number"], number++);
    const auto type = last["type"].get<std::string>();
    if (types.empty() || types.back() != type) types.push_back(type);
    if (last["type"] == "response.output_text.delta") text += last["delta"].get<std::string>();
  }
  EXPECT_EQ(types, (std::vector<std::string>{"response.created", "response.in_progress", "response.output_item.added",
                                             "response.content_part.added", "response.output_text.delta",
                                             "response.output_text.done", "response.content_part.done",
                                             "response.output_item.done", "response.incomplete"}));
  EXPECT_EQ(text, whole["output"][0]["content"][0]["text"].get<std::string>());
  EXPECT_EQ(last["response"]["output"][0]["content"][0]["text"], text);
  EXPECT_EQ(last["response"]["usage"]["output_tokens"], 4);
}

TEST(Responses, AFunctionsEvents) {
  LiveServer live;
  const std::string body =
      R"({"input": "Once", "max_output_tokens": 200, "temperature": 0, "tool_choice": "required", "parallel_tool_calls": false, "stream": true,
      "tools": [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"]}}]})";
  std::vector<std::string> types;
  std::string arguments;
  Json last;
  for (const std::string& data : events_of(post(live.port(), kPath, body).body)) {
    last = Json::parse(data, nullptr, false);
    const auto type = last["type"].get<std::string>();
    if (types.empty() || types.back() != type) types.push_back(type);
    if (last["type"] == "response.function_call_arguments.delta") arguments += last["delta"].get<std::string>();
  }
  EXPECT_EQ(types,
            (std::vector<std::string>{"response.created", "response.in_progress", "response.output_item.added",
                                      "response.function_call_arguments.delta", "response.function_call_arguments.done",
                                      "response.output_item.done", "response.completed"}));
  const Json& call = last["response"]["output"][0];
  EXPECT_EQ(call["type"], "function_call") << last;
  EXPECT_EQ(call["arguments"], arguments);
  EXPECT_TRUE(Json::parse(arguments, nullptr, false)["x"].is_number());
  // Its result, for the stored response.
  const Json answer =
      post(live.port(), kPath,
           Json{{"previous_response_id", last["response"]["id"]},
                {"max_output_tokens", 2},
                {"input", {{{"type", "function_call_output"}, {"call_id", call["call_id"]}, {"output", "done"}}}}}
               .dump())
          .json();
  EXPECT_EQ(answer["object"], "response") << answer;
}

TEST(Responses, StoredEvictedAndContinued) {
  ServiceOptions service;
  service.stored_responses = 2;
  LiveServer live(service);
  const auto params = [&](const std::string& more) {
    return post(live.port(), kPath, R"({"max_output_tokens": 3, "temperature": 0, )" + more + "}").json();
  };
  const Json first = params(R"("input": "Once upon a time", "instructions": "Be brief. ")");
  const std::string id = first["id"];
  EXPECT_EQ(get(live.port(), kPath + "/" + id).json(), first);
  const Json second = params(
      R"("input": [{"role": "user", "content": [{"type": "input_text", "text": "And then"}]}], "previous_response_id": ")" +
      id + "\"");
  EXPECT_EQ(second["previous_response_id"], id);
  // The earlier turn is in the prompt, its instructions are not.
  const auto tokens = [](const std::string& text) {
    return static_cast<int64_t>(shipped_model()->encode(text)->size());
  };
  EXPECT_EQ(second["usage"]["input_tokens"],
            tokens("Once upon a time" + first["output"][0]["content"][0]["text"].get<std::string>() + "\nAnd then"));
  EXPECT_EQ(params(R"("input": "x", "store": false)")["store"], false);
  params(R"("input": "x")");  // the third: the first makes room
  EXPECT_EQ(get(live.port(), kPath + "/" + id).status, 404);
  EXPECT_EQ(
      post(live.port(), kPath, R"({"input": "x", "previous_response_id": ")" + id + "\"}").json()["error"]["param"],
      "previous_response_id");
  EXPECT_EQ(forget(live.port(), second["id"]).json()["deleted"], true);
  EXPECT_EQ(forget(live.port(), second["id"]).status, 404);
  EXPECT_EQ(post(live.port(), kPath + "/input_tokens", R"({"input": "Once upon a time"})").json()["input_tokens"],
            tokens("Once upon a time"));
}

TEST(Responses, ErrorsNameTheField) {
  LiveServer live;
  const std::tuple<const char*, const char*, int> cases[] = {
      {R"({})", "input", 400},
      {R"({"input": 4})", "input", 400},
      {R"({"input": []})", "input", 400},
      {R"({"input": [{"role": "user"}]})", "input[0].content", 400},
      {R"({"input": [{"type": "item_reference", "id": "x"}]})", "input[0].type", 400},
      {R"({"input": [{"type": "function_call", "name": "f"}]})", "input[0].call_id", 400},
      {R"({"input": "x", "previous_response_id": "resp_x"})", "previous_response_id", 400},
      {R"({"input": "x", "tools": [{"type": "function"}]})", "tools[0].name", 400},
      {R"({"input": "x", "text": {"format": {"type": "json_schema"}}})", "text.format.json_schema", 400},
      {R"({"input": "x", "background": true})", "background", 400}};
  for (const auto& [body, field, status] : cases) {
    const Response answer = post(live.port(), kPath, body);
    EXPECT_EQ(answer.status, status) << body << answer.body;
    EXPECT_EQ(answer.json()["error"]["param"], field) << answer.body;
  }
}

}  // namespace
}  // namespace millrace
