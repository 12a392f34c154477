// Anthropic's message batches were missing, though OpenAI's were supported: its SDK's `messages.batches` got 404. The
// tests covered what was built, and nothing compared it with the two APIs' lists of endpoints.
#include <filesystem>
#include <sstream>

#include "server/live_server.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

const std::string kBatches = "/v1/messages/batches";

struct Folder {
  fs::path path = fs::temp_directory_path() / ("millrace-message-batches-" + std::to_string(::getpid()));
  Folder() { fs::remove_all(path); }
  ~Folder() { fs::remove_all(path); }
  ServiceOptions options() const {
    ServiceOptions out;
    out.files_dir = path.string();
    return out;
  }
};

Json params(int number) {
  return {{"model", "stories"},
          {"max_tokens", 5},
          {"temperature", 0},
          {"messages", {{{"role", "user"}, {"content", "Day " + std::to_string(number)}}}}};
}

Json request(const std::string& id, Json its_params) { return {{"custom_id", id}, {"params", std::move(its_params)}}; }

Response ask(int port, const std::string& method, const std::string& path) {
  Client client(port);
  client.get(path, method == "POST" ? "Content-Length: 0\r\n" : "", method);
  return client.response();
}

Json ended(int port, const std::string& id) {
  Json batch;
  EXPECT_TRUE(comes_true([&] {
    batch = get(port, kBatches + "/" + id).json();
    return batch["processing_status"] == "ended";
  })) << batch;
  return batch;
}

std::map<std::string, Json> results(int port, const std::string& url) {
  std::map<std::string, Json> out;
  std::istringstream lines(get(port, url).body);
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line);
    EXPECT_TRUE(out.emplace(json["custom_id"], json["result"]).second);
  }
  return out;
}

TEST(MessageBatches, AnswerAsLiveRequestsDo) {
  Folder folder;
  LiveServer live(folder.options());
  Json requests = Json::array();
  for (int i = 0; i < 5; ++i) requests.push_back(request("line-" + std::to_string(i), params(i)));
  requests.push_back(request("bad", {{"model", "stories"}, {"messages", {{{"role", "user"}, {"content", "a"}}}}}));
  const Response made = post(live.port(), kBatches, Json{{"requests", requests}}.dump());
  ASSERT_EQ(made.status, 200) << made.body;
  const std::string id = made.json()["id"];
  EXPECT_TRUE(id.starts_with("msgbatch_"));
  EXPECT_EQ(made.json()["type"], "message_batch");
  EXPECT_EQ(made.json()["results_url"], nullptr);
  const Json batch = ended(live.port(), id);
  EXPECT_EQ(batch["request_counts"],
            (Json{{"processing", 0}, {"succeeded", 5}, {"errored", 1}, {"canceled", 0}, {"expired", 0}}));
  EXPECT_TRUE(batch["ended_at"].is_string());
  const auto by_id = results(live.port(), batch["results_url"]);
  ASSERT_EQ(by_id.size(), 6u);
  for (int i = 0; i < 5; ++i) {
    const Json& result = by_id.at("line-" + std::to_string(i));
    EXPECT_EQ(result["type"], "succeeded");
    EXPECT_EQ(result["message"]["content"], post(live.port(), "/v1/messages", params(i).dump()).json()["content"]);
  }
  EXPECT_EQ(by_id.at("bad")["type"], "errored");
  EXPECT_EQ(by_id.at("bad")["error"]["error"]["type"], "invalid_request_error");
  // The lists of the two APIs are separate.
  EXPECT_EQ(get(live.port(), "/v1/batches").json()["data"], Json::array());
  const std::string second =
      post(live.port(), kBatches, Json{{"requests", Json::array({request("a", params(1))})}}.dump()).json()["id"];
  ended(live.port(), second);
  const Json list = get(live.port(), kBatches + "?limit=1").json();
  EXPECT_EQ(list["data"].size(), 1u);
  EXPECT_EQ(list["has_more"], true);
  EXPECT_EQ(get(live.port(), kBatches + "?after_id=" + list["last_id"].get<std::string>()).json()["data"].size(), 1u);
  EXPECT_EQ(ask(live.port(), "POST", kBatches + "/" + id + "/cancel").status, 400);  // it has ended
  const Json gone = ask(live.port(), "DELETE", kBatches + "/" + id).json();
  EXPECT_EQ(gone, (Json{{"id", id}, {"type", "message_batch_deleted"}}));
  EXPECT_EQ(get(live.port(), kBatches + "/" + id).status, 404);
  EXPECT_EQ(get(live.port(), kBatches).json()["data"].size(), 1u);
}

TEST(MessageBatches, ACancelledBatchListsEveryRequest) {
  Folder folder;
  LiveServer live(folder.options());
  Json requests = Json::array();
  for (int i = 0; i < 300; ++i) {
    Json one = params(i);
    one["max_tokens"] = 200;
    requests.push_back(request(std::to_string(i), one));
  }
  const std::string id = post(live.port(), kBatches, Json{{"requests", requests}}.dump()).json()["id"];
  EXPECT_EQ(get(live.port(), kBatches + "/" + id + "/results").status, 400);
  EXPECT_EQ(ask(live.port(), "DELETE", kBatches + "/" + id).status, 400);
  const Json cancelling = ask(live.port(), "POST", kBatches + "/" + id + "/cancel").json();
  EXPECT_NE(cancelling["processing_status"], "in_progress") << cancelling;
  const Json batch = ended(live.port(), id);
  const Json& counts = batch["request_counts"];
  EXPECT_EQ(counts["succeeded"].get<int>() + counts["canceled"].get<int>(), 300) << counts;
  const auto by_id = results(live.port(), batch["results_url"]);
  EXPECT_EQ(by_id.size(), 300u);
  const auto cancelled = std::ranges::count_if(by_id, [](const auto& one) { return one.second["type"] == "canceled"; });
  EXPECT_EQ(cancelled, counts["canceled"].get<int>());
}

TEST(MessageBatches, InvalidBatchesAreRefusedNamingThePlace) {
  Folder folder;
  LiveServer live(folder.options());
  Json streamed = params(1);
  streamed["stream"] = true;
  const std::pair<Json, std::string> wrong[] = {
      {Json::array(), "requests"},
      {{request("a", params(1)), request("a", params(2))}, "requests[1].custom_id"},
      {Json::array({request("", params(1))}), "requests[0].custom_id"},
      {Json::array({Json{{"custom_id", "a"}}}), "requests[0].params"},
      {Json::array({request("a", streamed)}), "requests[0].params.stream"}};
  for (const auto& [requests, field] : wrong) {
    const Response answer = post(live.port(), kBatches, Json{{"requests", requests}}.dump());
    EXPECT_EQ(answer.status, 400) << requests;
    EXPECT_TRUE(answer.json()["error"]["message"].get<std::string>().starts_with(field + ": ")) << answer.body;
  }
  EXPECT_EQ(get(live.port(), kBatches + "/msgbatch_0").status, 404);
  EXPECT_EQ(post(live.port(), "/v1/batches",
                 R"({"input_file_id": "file-0", "endpoint": "/v1/messages", "completion_window": "24h"})")
                .status,
            400);
}

}  // namespace
}  // namespace millrace
