// In /v1/responses, input_items, streaming a stored response and log-probabilities were missing: SDKs that request them
// got 404, a JSON body instead of events, and 501. The tests covered what was built, not what the API's clients call.
#include "server/live_server.h"

namespace millrace {
namespace {

const std::string kPath = "/v1/responses";

Json ids_of(const Json& list) {
  Json out = Json::array();
  for (const Json& item : list["data"]) out.push_back(item["id"]);
  return out;
}

TEST(ResponsesItems, AreListedInPages) {
  LiveServer live;
  const Json first = post(live.port(), kPath, R"({"input": "Once", "max_output_tokens": 3})").json();
  const std::string second =
      post(
          live.port(), kPath,
          R"({"previous_response_id": ")" + first["id"].get<std::string>() +
              R"(", "input": [{"role": "user", "content": [{"type": "input_text", "text": "And?"}]}, {"id": "mine", "role": "user", "content": "So?"}],
                                                             "instructions": "Be brief", "max_output_tokens": 3})")
          .json()["id"];
  const std::string items = kPath + "/" + second + "/input_items";
  const Json all = get(live.port(), items + "?order=asc").json();
  ASSERT_TRUE(all.contains("data")) << all;
  ASSERT_EQ(all["data"].size(), 4u) << all;
  EXPECT_EQ(all["object"], "list");
  EXPECT_EQ(all["has_more"], false);
  EXPECT_EQ(all["data"][0]["content"][0], (Json{{"type", "input_text"}, {"text", "Once"}}));
  EXPECT_EQ(all["data"][1], first["output"][0]);
  EXPECT_EQ(all["data"][2]["content"][0]["text"], "And?");
  EXPECT_EQ(all["data"][3]["id"], "mine");
  EXPECT_EQ(all["first_id"], all["data"][0]["id"]);
  EXPECT_EQ(all["last_id"], "mine");
  const Json ids = ids_of(all);
  Json backwards = ids;
  std::reverse(backwards.begin(), backwards.end());
  EXPECT_EQ(ids_of(get(live.port(), items).json()), backwards);
  const Json page = get(live.port(), items + "?order=asc&limit=2&after=" + ids[0].get<std::string>()).json();
  EXPECT_EQ(ids_of(page), Json::array({ids[1], ids[2]}));
  EXPECT_EQ(page["has_more"], true);
  for (const char* wrong : {"?limit=0", "?limit=101", "?limit=x", "?order=up", "?after=unknown"})
    EXPECT_EQ(get(live.port(), items + wrong).status, 400) << wrong;
  EXPECT_EQ(get(live.port(), kPath + "/resp_0/input_items").status, 404);
  EXPECT_EQ(get(live.port(), kPath + "/" + second + "/other").status, 404);
}

std::vector<Json> parsed(const std::string& stream) {
  std::vector<Json> out;
  for (const std::string& event : events_of(stream)) out.push_back(Json::parse(event, nullptr, false));
  return out;
}

TEST(ResponsesItems, AStoredResponseIsStreamedAgain) {
  LiveServer live;
  const std::string tools =
      R"("tools": [{"type": "function", "name": "meet", "parameters": {"type": "object", "properties": {"age": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["age"]}},
                                         {"type": "custom", "name": "run", "format": {"type": "grammar", "syntax": "regex", "definition": "[ab]{3}\"x"}}], )";
  for (const std::string& more : {std::string(R"("include": ["message.output_text.logprobs"], )"),
                                  tools + R"("tool_choice": {"type": "function", "name": "meet"}, )",
                                  tools + R"("tool_choice": {"type": "custom", "name": "run"}, )"}) {
    const std::string original =
        post(live.port(), kPath,
             "{" + more + R"("input": "Once", "temperature": 0, "max_output_tokens": 60, "stream": true})")
            .body;
    const std::vector<Json> events = parsed(original);
    ASSERT_GT(events.size(), 6u) << original;
    const std::string id = events.front()["response"]["id"];
    const Response again = get(live.port(), kPath + "/" + id + "?stream=true");
    EXPECT_EQ(again.headers.at("content-type"), "text/event-stream");
    const std::vector<Json> replayed = parsed(again.body);
    ASSERT_EQ(replayed.size(), events.size()) << original << again.body;
    for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(replayed[i], events[i]);
    const std::vector<Json> rest = parsed(get(live.port(), kPath + "/" + id + "?stream=true&starting_after=4").body);
    EXPECT_EQ(rest, std::vector<Json>(events.begin() + 5, events.end()));
  }
  const Json whole = post(live.port(), kPath, R"({"input": "Once", "max_output_tokens": 3})").json();
  const std::vector<Json> streamed =
      parsed(get(live.port(), kPath + "/" + whole["id"].get<std::string>() + "?stream=true").body);
  ASSERT_FALSE(streamed.empty());
  EXPECT_EQ(streamed.back()["response"], whole);
  EXPECT_EQ(streamed.back()["type"], "response.incomplete");
  EXPECT_EQ(get(live.port(), kPath + "/" + whole["id"].get<std::string>() + "?stream=true&starting_after=x").status,
            400);
  EXPECT_EQ(get(live.port(), kPath + "/" + whole["id"].get<std::string>() + "?starting_after=1").status, 400);
}

TEST(ResponsesItems, LogprobsOfTheText) {
  LiveServer live;
  const std::string body =
      R"("input": "Once upon a time", "temperature": 0, "max_output_tokens": 5, "ignore_eos": true, "top_logprobs": 2, "include": ["message.output_text.logprobs"]})";
  const Json whole = post(live.port(), kPath, "{" + body).json();
  ASSERT_TRUE(whole.contains("output")) << whole;
  const Json& part = whole["output"][0]["content"][0];
  ASSERT_EQ(part["logprobs"].size(), 5u) << part;
  for (const Json& token : part["logprobs"]) {
    EXPECT_LE(token["logprob"].get<double>(), 0);
    EXPECT_EQ(token["top_logprobs"].size(), 2u);
  }
  size_t streamed = 0;
  for (const Json& event : parsed(post(live.port(), kPath, R"({"stream": true, )" + body).body)) {
    if (event["type"] == "response.output_text.delta") streamed += event["logprobs"].size();
    if (event["type"] == "response.incomplete") {
      EXPECT_EQ(event["response"]["output"][0]["content"][0]["logprobs"], part["logprobs"]);
    }
  }
  EXPECT_EQ(streamed, 5u);
  EXPECT_EQ(post(live.port(), kPath, R"({"input": "a", "include": ["everything"]})").json()["error"]["param"],
            "include");
}

TEST(ResponsesItems, OnlyBackgroundResponsesCanBeCancelled) {
  LiveServer live;
  const std::string id = post(live.port(), kPath, R"({"input": "Once", "max_output_tokens": 3})").json()["id"];
  const Response refused = post(live.port(), kPath + "/" + id + "/cancel", "");
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("background"), std::string::npos);
  EXPECT_EQ(post(live.port(), kPath + "/resp_0/cancel", "").status, 404);
}

}  // namespace
}  // namespace millrace
