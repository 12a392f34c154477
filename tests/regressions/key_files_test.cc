// Files and batches were for administrators only, so that users with ordinary keys had none; and an unknown purpose was
// accepted. No test used a key without the administrator role.
#include <filesystem>
#include <fstream>

#include "server/live_server.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

struct Keys {
  fs::path folder = fs::temp_directory_path() / ("millrace_key_files_" + std::to_string(getpid()));
  ServiceOptions options;

  explicit Keys(const std::string& more = "") {
    fs::remove_all(folder);
    options.files_dir = folder;
    options.keys =
        *parse_api_keys(R"({"keys": [{"name": "alice", "key": "a")" + more +
                            R"(}, {"name": "bob", "key": "b"}, {"name": "ops", "key": "o", "role": "admin"}]})",
                        "keys");
  }
  ~Keys() { fs::remove_all(folder); }
};

std::string bearer(const char* key) { return std::string("Authorization: Bearer ") + key + "\r\n"; }

Response upload(int port, const char* key, const std::string& content, const std::string& purpose = "batch") {
  const std::string body = "--xyz\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n" + purpose +
                           "\r\n--xyz\r\nContent-Disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\r\n" +
                           content + "\r\n--xyz--\r\n";
  Client client(port);
  client.send("POST /v1/files HTTP/1.1\r\nHost: localhost\r\n" + bearer(key) +
              "Content-Type: multipart/form-data; boundary=xyz\r\nContent-Length: " + std::to_string(body.size()) +
              "\r\n\r\n" + body);
  return client.response();
}
int erase(int port, const char* key, const std::string& path) {
  Client client(port);
  client.get(path, bearer(key), "DELETE");
  return client.response().status;
}
size_t count(int port, const char* key, const std::string& path) {
  return get(port, path, bearer(key)).json()["data"].size();
}
constexpr const char* kLine =
    R"({"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Once upon a time there was", "max_tokens": 2, "ignore_eos": true}})";

TEST(KeyFiles, BelongToTheKeyThatUploadedThem) {
  Keys keys;
  std::string of_alice, batch, output;
  {
    LiveServer live(keys.options);
    const int port = live.port();
    const Response uploaded = upload(port, "a", kLine);
    ASSERT_EQ(uploaded.status, 200) << uploaded.body;
    of_alice = uploaded.json()["id"];
    EXPECT_FALSE(uploaded.json().contains("owner"));
    ASSERT_EQ(upload(port, "b", "of bob").status, 200);
    EXPECT_EQ(count(port, "a", "/v1/files"), 1u);
    EXPECT_EQ(count(port, "b", "/v1/files"), 1u);
    EXPECT_EQ(count(port, "o", "/v1/files"), 2u);
    for (const std::string& path : {"/v1/files/" + of_alice, "/v1/files/" + of_alice + "/content"}) {
      EXPECT_EQ(get(port, path, bearer("a")).status, 200);
      EXPECT_EQ(get(port, path, bearer("o")).status, 200);
      EXPECT_EQ(get(port, path, bearer("b")).status, 404);
      EXPECT_EQ(get(port, path).status, 401);
    }
    EXPECT_EQ(erase(port, "b", "/v1/files/" + of_alice), 404);
    const std::string body =
        Json{{"input_file_id", of_alice}, {"endpoint", "/v1/completions"}, {"completion_window", "24h"}}.dump();
    EXPECT_EQ(post(port, "/v1/batches", body, bearer("b")).status, 400);
    const Response made = post(port, "/v1/batches", body, bearer("a"));
    ASSERT_EQ(made.status, 200) << made.body;
    batch = made.json()["id"];
    EXPECT_EQ(get(port, "/v1/batches/" + batch, bearer("b")).status, 404);
    EXPECT_EQ(post(port, "/v1/batches/" + batch + "/cancel", "", bearer("b")).status, 404);
    EXPECT_EQ(count(port, "b", "/v1/batches"), 0u);
    ASSERT_TRUE(
        comes_true([&] { return get(port, "/v1/batches/" + batch, bearer("a")).json()["status"] == "completed"; }));
    output = get(port, "/v1/batches/" + batch, bearer("a")).json()["output_file_id"];
    EXPECT_EQ(get(port, "/v1/files/" + output + "/content", bearer("a")).status, 200);
    EXPECT_EQ(get(port, "/v1/files/" + output + "/content", bearer("b")).status, 404);
    for (const KeyUsage& usage : live.server->service().key_usage())
      EXPECT_EQ(usage.generated_tokens, usage.name == "alice" ? 2 : 0);  // charged like anything else
  }
  LiveServer again(keys.options);
  EXPECT_EQ(get(again.port(), "/v1/files/" + of_alice, bearer("a")).status, 200);
  EXPECT_EQ(get(again.port(), "/v1/files/" + of_alice, bearer("b")).status, 404);
  EXPECT_EQ(get(again.port(), "/v1/batches/" + batch, bearer("a")).status, 200);
  EXPECT_EQ(get(again.port(), "/v1/batches/" + batch, bearer("b")).status, 404);
  EXPECT_EQ(get(again.port(), "/v1/files/" + output, bearer("b")).status, 404);
  EXPECT_EQ(erase(again.port(), "a", "/v1/files/" + of_alice), 200);
}

TEST(KeyFiles, OlderFilesBelongToTheAdministrator) {
  Keys keys;
  fs::create_directories(keys.folder);
  const std::string id = "file-0123456789abcdef01234567";
  std::ofstream(keys.folder / id) << "old";
  std::ofstream(keys.folder / (id + ".json"))
      << R"({"id": "file-0123456789abcdef01234567", "filename": "old", "purpose": "batch", "bytes": 3, "created_at": 1})";
  LiveServer live(keys.options);
  EXPECT_EQ(get(live.port(), "/v1/files/" + id, bearer("o")).status, 200);
  EXPECT_EQ(get(live.port(), "/v1/files/" + id, bearer("a")).status, 404);
}

TEST(KeyFiles, HaveTheirOwnLimits) {
  Keys keys(R"(, "files": 2, "file_bytes": 100)");
  keys.options.files.key_files = 1;
  LiveServer live(keys.options);
  EXPECT_EQ(upload(live.port(), "a", std::string(101, 'a')).status, 429);
  EXPECT_EQ(upload(live.port(), "a", std::string(60, 'a')).status, 200);
  EXPECT_EQ(upload(live.port(), "a", std::string(60, 'a')).status, 429);
  EXPECT_EQ(upload(live.port(), "a", "a").status, 200);
  EXPECT_EQ(upload(live.port(), "a", "a").status, 429);
  EXPECT_EQ(upload(live.port(), "b", "b").status, 200);
  EXPECT_EQ(upload(live.port(), "b", "b").status, 429);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(upload(live.port(), "o", "o").status, 200);
}

TEST(KeyFiles, ABatchOverItsQuotaFails) {
  Keys keys(R"(, "tokens_total": 1)");
  LiveServer live(keys.options);
  const std::string file = upload(live.port(), "a", kLine).json()["id"];
  const Json made =
      post(live.port(), "/v1/batches",
           Json{{"input_file_id", file}, {"endpoint", "/v1/completions"}, {"completion_window", "24h"}}.dump(),
           bearer("a"))
          .json();
  const std::string path = "/v1/batches/" + made["id"].get<std::string>();
  ASSERT_TRUE(comes_true([&] { return get(live.port(), path, bearer("a")).json()["status"] == "completed"; }));
  EXPECT_EQ(get(live.port(), path, bearer("a")).json()["request_counts"],
            (Json{{"total", 1}, {"completed", 0}, {"failed", 1}}));
}

TEST(KeyFiles, NeedAKnownPurpose) {
  Keys keys;
  LiveServer live(keys.options);
  for (const char* purpose : {"nonsense", "batch_output", "Batch"}) {
    const Response refused = upload(live.port(), "o", "a", purpose);
    EXPECT_EQ(refused.status, 400) << purpose;
    EXPECT_EQ(refused.json().value(Json::json_pointer("/error/param"), ""), "purpose") << refused.body;
  }
  for (const char* purpose : {"batch", "assistants", "fine-tune", "vision", "user_data", "evals"})
    EXPECT_EQ(upload(live.port(), "o", "a", purpose).status, 200) << purpose;
}

}  // namespace
}  // namespace millrace
