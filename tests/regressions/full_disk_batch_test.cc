// A batch on a full disk was `failed` without errors, its answers were lost, and after a restart it ran again. An
// upload got 429 with the server's path.
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "server/live_server.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// While this exists, no file grows beyond `bytes`, as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(int64_t bytes) : before_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &all_);
    rlimit small = all_;
    small.rlim_cur = static_cast<rlim_t>(bytes);
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &all_);
    std::signal(SIGXFSZ, before_);
  }

 private:
  rlimit all_{};
  void (*before_)(int);
};

Response upload_lines(int port, const std::string& content) {
  const std::string body =
      "--xyz\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--xyz\r\nContent-Disposition: "
      "form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\r\n" +
      content + "\r\n--xyz--\r\n";
  Client client(port);
  client.send(
      "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=xyz\r\n"
      "Content-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
  return client.response();
}

TEST(FullDiskBatch, FailsWithItsReasonAndKeepsTheAnswers) {
  const fs::path folder = fs::temp_directory_path() / ("millrace_full_disk_" + std::to_string(getpid()));
  fs::remove_all(folder);
  ServiceOptions options;
  options.files_dir = folder;
  std::string id;
  Json batch;
  {
    LiveServer live(options);
    std::string lines;
    for (int i = 0; i < 120; ++i)
      lines += Json{{"custom_id", std::to_string(i)},
                    {"method", "POST"},
                    {"url", "/v1/completions"},
                    {"body", {{"prompt", "One"}, {"max_tokens", 1}}}}
                   .dump() +
               "\n";
    const FullDisk full(33 << 10);  // a batch's reserve has 32 KiB
    const Response refused = upload_lines(live.port(), std::string(40 << 10, 'x'));
    EXPECT_EQ(refused.status, 507);
    EXPECT_EQ(refused.body.find(folder.string()), std::string::npos) << refused.body;
    const Response file = upload_lines(live.port(), lines);
    ASSERT_EQ(file.status, 200) << file.body;
    id = post(live.port(), "/v1/batches",
              Json{{"input_file_id", file.json()["id"]}, {"endpoint", "/v1/completions"}, {"completion_window", "24h"}}
                  .dump())
             .json()["id"];
    ASSERT_TRUE(comes_true([&] {
      batch = get(live.port(), "/v1/batches/" + id).json();
      return batch["status"] == "failed" && batch["output_file_id"].is_string();
    })) << batch;
    ASSERT_EQ(batch["errors"]["data"].size(), 1u) << batch;
    EXPECT_EQ(batch["errors"]["data"][0]["code"], "no_storage");
    EXPECT_NE(batch["errors"]["data"][0]["message"], "");
  }
  LiveServer live(options);
  EXPECT_EQ(get(live.port(), "/v1/batches/" + id).json(), batch);
  const std::string output =
      get(live.port(), "/v1/files/" + batch["output_file_id"].get<std::string>() + "/content").body;
  EXPECT_TRUE(output.ends_with("}\n"));
  EXPECT_EQ(std::ranges::count(output, '\n'), batch["request_counts"]["completed"].get<int64_t>());
  fs::remove_all(folder);
}

}  // namespace
}  // namespace millrace
