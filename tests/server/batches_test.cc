// Files and batches over HTTP: batch results equal those of live requests, even if the process restarts in between.
#include <filesystem>
#include <fstream>
#include <set>

#include "server/batch/line_runner.h"
#include "server/live_server.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path =
      fs::temp_directory_path() / ("millrace_files_" + std::to_string(getpid()) + "_" + std::to_string(next()++));
  ~Folder() { fs::remove_all(path); }
  static int& next() {
    static int number = 0;
    return number;
  }
  ServiceOptions options() const {
    ServiceOptions out;
    out.files_dir = path;
    return out;
  }
};

Response upload(int port, const std::string& content, const std::string& purpose = "batch") {
  const std::string body = "--xyz\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n" + purpose +
                           "\r\n--xyz\r\nContent-Disposition: form-data; name=\"file\"; "
                           "filename=\"in.jsonl\"\r\nContent-Type: application/jsonl\r\n\r\n" +
                           content + "\r\n--xyz--\r\n";
  Client client(port);
  client.send(
      "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; "
      "boundary=xyz\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
  return client.response();
}

Json prompt_body(int i) {
  return {{"prompt", "Once upon a time " + std::to_string(i)}, {"max_tokens", 6}, {"temperature", 0}};
}

std::string lines(int count) {
  std::string out;
  for (int i = 0; i < count; ++i)
    out += Json{{"custom_id", "line-" + std::to_string(i)},
                {"method", "POST"},
                {"url", "/v1/completions"},
                {"body", prompt_body(i)}}
               .dump() +
           "\n";
  return out;
}

Json begin(int port, const std::string& file, const std::string& endpoint = "/v1/completions") {
  return post(port, "/v1/batches",
              Json{{"input_file_id", file},
                   {"endpoint", endpoint},
                   {"completion_window", "24h"},
                   {"metadata", {{"a", "b"}}}}
                  .dump())
      .json();
}

Json ended(int port, const std::string& id) {
  Json batch;
  EXPECT_TRUE(comes_true([&] {
    batch = get(port, "/v1/batches/" + id).json();
    const std::string status = batch["status"];
    return status == "completed" || status == "failed" || status == "cancelled" || status == "expired";
  })) << batch;
  return batch;
}

std::map<std::string, Json> results(int port, const Json& file) {
  std::map<std::string, Json> out;
  if (!file.is_string()) return out;
  const std::string text = get(port, "/v1/files/" + file.get<std::string>() + "/content").body;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const Json line = Json::parse(text.substr(at, end - at));
    EXPECT_TRUE(out.emplace(line["custom_id"], line["response"]).second) << line;
    at = end + 1;
  }
  return out;
}

TEST(Files, AreUploadedListedAndDeleted) {
  Folder folder;
  LiveServer live(folder.options());
  const std::string content = "a\r\n--xy\nb\0c" + std::string(1, '\0');
  const Json file = upload(live.port(), content).json();
  const std::string id = file["id"];
  EXPECT_TRUE(id.starts_with("file-"));
  EXPECT_EQ(file["filename"], "in.jsonl");
  EXPECT_EQ(file["bytes"], content.size());
  EXPECT_EQ(get(live.port(), "/v1/files/" + id + "/content").body, content);
  EXPECT_EQ(get(live.port(), "/v1/files/" + id).json(), file);
  EXPECT_EQ(get(live.port(), "/v1/files?purpose=batch").json()["data"], Json::array({file}));
  EXPECT_EQ(get(live.port(), "/v1/files?purpose=other").json()["data"], Json::array());
  EXPECT_EQ(get(live.port(), "/v1/files/file-0").status, 404);
  EXPECT_EQ(get(live.port(), "/v1/files/..%2F..%2Fetc%2Fpasswd/content").status, 404);
  Client client(live.port());
  client.get("/v1/files/" + id, "", "DELETE");
  EXPECT_EQ(client.response().json()["deleted"], true);
  EXPECT_EQ(get(live.port(), "/v1/files/" + id).status, 404);
  EXPECT_TRUE(fs::is_empty(folder.path));
}

TEST(Files, AreBoundedAndRefusedWithReasons) {
  Folder folder;
  ServiceOptions options = folder.options();
  options.files = {.files = 2, .bytes = 100};
  LiveServer live(options);
  EXPECT_EQ(upload(live.port(), std::string(101, 'a')).status, 429);
  EXPECT_EQ(upload(live.port(), std::string(60, 'a')).status, 200);
  EXPECT_EQ(upload(live.port(), std::string(60, 'a')).status, 429);
  EXPECT_EQ(upload(live.port(), "a").status, 200);
  EXPECT_EQ(upload(live.port(), "a").status, 429);
  EXPECT_EQ(post(live.port(), "/v1/files", "{}").status, 400);
  EXPECT_EQ(upload(live.port(), "a", "").json()["error"]["param"], "purpose");
  LiveServer without;
  EXPECT_EQ(get(without.port(), "/v1/files").status, 501);
  EXPECT_EQ(get(without.port(), "/v1/batches").status, 501);
}

TEST(Batches, AnswerAsLiveRequestsDo) {
  Folder folder;
  LiveServer live(folder.options());
  std::string input = lines(9);
  input += Json{{"custom_id", "bad"},
                {"method", "POST"},
                {"url", "/v1/completions"},
                {"body", {{"prompt", "a"}, {"temperature", "hot"}}}}
               .dump();  // no newline at the end
  const Json made = begin(live.port(), upload(live.port(), input).json()["id"]);
  EXPECT_EQ(made["object"], "batch");
  const Json batch = ended(live.port(), made["id"]);
  EXPECT_EQ(batch["status"], "completed");
  EXPECT_EQ(batch["request_counts"], (Json{{"total", 10}, {"completed", 9}, {"failed", 1}}));
  EXPECT_EQ(batch["metadata"], (Json{{"a", "b"}}));
  const auto good = results(live.port(), batch["output_file_id"]), bad = results(live.port(), batch["error_file_id"]);
  ASSERT_EQ(good.size(), 9u);
  for (int i = 0; i < 9; ++i) {
    const Json& response = good.at("line-" + std::to_string(i));
    EXPECT_EQ(response["status_code"], 200);
    EXPECT_EQ(response["body"]["choices"],
              post(live.port(), "/v1/completions", prompt_body(i).dump()).json()["choices"]);
  }
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad.at("bad")["status_code"], 400);
  EXPECT_EQ(bad.at("bad")["body"]["error"]["param"], "temperature");
  EXPECT_EQ(get(live.port(), "/v1/batches").json()["data"][0]["id"], made["id"]);
}

TEST(Batches, ComputeEmbeddings) {
  Folder folder;
  LiveServer live(folder.options());
  const std::string line =
      Json{{"custom_id", "a"}, {"method", "POST"}, {"url", "/v1/embeddings"}, {"body", {{"input", "One day"}}}}.dump();
  const Json batch =
      ended(live.port(), begin(live.port(), upload(live.port(), line).json()["id"], "/v1/embeddings")["id"]);
  const auto good = results(live.port(), batch["output_file_id"]);
  ASSERT_EQ(good.count("a"), 1u) << batch;
  EXPECT_EQ(good.at("a")["body"]["data"],
            post(live.port(), "/v1/embeddings", R"({"input": "One day"})").json()["data"]);
}

TEST(Batches, FailAsAWholeWhenALineIsInvalid) {
  Folder folder;
  LiveServer live(folder.options());
  const std::string good = R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "a"}})";
  for (const std::string& bad : {std::string("{"), std::string(R"({"custom_id": "b", "url": "/v1/completions"})"),
                                 std::string(R"({"custom_id": "b", "url": "/metrics", "body": {}})"),
                                 std::string(R"({"custom_id": "b", "url": "/v1/embeddings", "body": {}})"), good}) {
    const Json batch =
        ended(live.port(), begin(live.port(), upload(live.port(), good + "\n" + bad).json()["id"])["id"]);
    EXPECT_EQ(batch["status"], "failed") << bad;
    EXPECT_EQ(batch["errors"]["data"].at(0)["line"], 2) << batch;
    EXPECT_TRUE(batch["output_file_id"].is_null());
  }
  EXPECT_EQ(ended(live.port(), begin(live.port(), upload(live.port(), "\n\n").json()["id"])["id"])["status"], "failed");
  EXPECT_EQ(begin(live.port(), "file-0")["error"]["param"], "input_file_id");
  EXPECT_EQ(begin(live.port(), upload(live.port(), good).json()["id"], "/metrics")["error"]["param"], "endpoint");
  EXPECT_EQ(get(live.port(), "/v1/batches/batch_0").status, 404);
}

// As if the process had ended in the middle of an output line.
TEST(Batches, ContinueAfterARestart) {
  Folder folder;
  std::string id;
  {
    LiveServer live(folder.options());
    id = begin(live.port(), upload(live.port(), lines(6)).json()["id"])["id"];
    ended(live.port(), id);
  }
  Json batch = Json::parse(std::ifstream(folder.path / (id + ".json")));
  const std::string output = batch["output_file_id"];
  std::ifstream file(folder.path / output);
  std::string first, second;
  std::getline(file, first);
  std::getline(file, second);
  std::ofstream(folder.path / (id + ".output")) << first << "\n" << second.substr(0, second.size() / 2);
  fs::remove(folder.path / output);
  fs::remove(folder.path / (output + ".json"));
  batch["status"] = "in_progress";
  batch["output_file_id"] = nullptr;
  std::ofstream(folder.path / (id + ".json")) << batch.dump();
  std::ofstream(folder.path / "file-left.tmp") << "x";
  LiveServer live(folder.options());
  const Json done = ended(live.port(), id);
  EXPECT_EQ(done["status"], "completed");
  EXPECT_EQ(done["request_counts"]["completed"], 6);
  const auto good = results(live.port(), done["output_file_id"]);
  EXPECT_EQ(good.size(), 6u);
  EXPECT_EQ(good.at(Json::parse(first)["custom_id"])["request_id"],
            Json::parse(first)["response"]["request_id"]);  // it was not run again
  EXPECT_FALSE(fs::exists(folder.path / "file-left.tmp"));
  EXPECT_FALSE(fs::exists(folder.path / (id + ".output")));
}

TEST(Batches, KeepPartialResultsWhenCancelled) {
  Folder folder;
  LiveServer live(folder.options());
  std::string input = lines(1);
  for (int i = 0; i < 4; ++i) {
    Json body = prompt_body(i);
    body["max_tokens"] = -1;
    body["ignore_eos"] = true;
    input +=
        Json{{"custom_id", "long-" + std::to_string(i)}, {"method", "POST"}, {"url", "/v1/completions"}, {"body", body}}
            .dump() +
        "\n";
  }
  ServiceOptions options = folder.options();
  const std::string id = begin(live.port(), upload(live.port(), input).json()["id"])["id"];
  ASSERT_TRUE(
      comes_true([&] { return get(live.port(), "/v1/batches/" + id).json()["request_counts"]["completed"] == 1; }));
  const std::string file = get(live.port(), "/v1/batches/" + id).json()["input_file_id"];
  Client client(live.port());
  client.get("/v1/files/" + file, "", "DELETE");
  const int deleted = client.response().status;
  post(live.port(), "/v1/batches/" + id + "/cancel", "");
  const Json batch = ended(live.port(), id);
  if (batch["status"] == "cancelled") {
    EXPECT_EQ(deleted, 400);  // it was in use
    EXPECT_EQ(results(live.port(), batch["output_file_id"]).count("line-0"), 1u);
  }
  EXPECT_TRUE(comes_true([&] { return live.engine().stats().running == 0; }));
  EXPECT_EQ(post(live.port(), "/v1/batches/batch_0/cancel", "").status, 404);
}

TEST(LineRunner, StopsAtOnceOnRequest) {
  LiveServer live;
  std::atomic<bool> stop{false};
  int64_t begun = 0, done = 0;
  Json body = prompt_body(0);
  body["max_tokens"] = -1;
  body["ignore_eos"] = true;
  auto ran = LineRunner(live.server->service(), 2)
                 .run(
                     [&]() -> std::optional<BatchLine> {
                       if (++begun == 2) stop = true;
                       return BatchLine{std::to_string(begun), "/v1/completions", body};
                     },
                     [&](const LineResult&) -> Result<void> {
                       ++done;
                       return {};
                     },
                     stop);
  EXPECT_TRUE(ran.ok());
  EXPECT_EQ(begun, 2);
  EXPECT_EQ(done, 0);
  EXPECT_TRUE(comes_true([&] { return live.engine().stats().running == 0; }));
}

}  // namespace
}  // namespace millrace
