// Every refusal of a full server listed the folder of models, under the lock that all requests wait for: the fuller the
// server, the slower its refusals. The tests of a full queue serve one model, without a folder.
#include <sys/inotify.h>

#include <filesystem>

#include "regressions/step_gate.h"
#include "server/live_server.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// How often a folder has been opened since the last call.
class Opens {
 public:
  explicit Opens(const fs::path& folder) : file_(inotify_init1(IN_NONBLOCK)) {
    inotify_add_watch(file_, folder.c_str(), IN_OPEN | IN_ONLYDIR);
  }
  ~Opens() { ::close(file_); }
  int count() {
    alignas(inotify_event) char bytes[16384];
    for (ssize_t got; (got = ::read(file_, bytes, sizeof(bytes))) > 0;)
      for (ssize_t at = 0; at < got;) {
        const auto* event = reinterpret_cast<const inotify_event*>(bytes + at);
        if (event->mask & IN_ISDIR) ++opens_;
        at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      }
    return opens_;
  }

 private:
  int file_, opens_ = 0;
};

TEST(OverloadListing, RefusalsDoNotListTheFolder) {
  const fs::path folder = fs::temp_directory_path() / ("millrace_listing_" + std::to_string(getpid()));
  fs::create_directories(folder);
  const std::string good = std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama/model.gguf";
  fs::copy_file(good, folder / "m.gguf");
  RegistryOptions options;
  options.folder = folder;
  options.found.load.threads = options.found.engine.threads = 1;
  options.found.engine.max_streams = 1;
  options.found.engine.queue = 0;
  auto server = *Server::start(*ModelRegistry::create(options), ServiceOptions{.local_only = true},
                               HttpLimits{.port = 0, .io_threads = 1});
  const auto ask = [&](const char* model, int tokens) {
    return Json{{"model", model}, {"prompt", {1, 2, 3}}, {"max_tokens", tokens}, {"ignore_eos", true}}.dump();
  };
  ASSERT_EQ(post(server->port(), "/v1/completions", ask("m", 1)).status, 200);
  Engine& engine = server->service().engine();
  auto gate = std::make_unique<StepGate>(engine);
  Client holder(server->port());  // takes the only slot
  holder.post("/v1/completions", ask("m", 20));
  ASSERT_TRUE(comes_true([&] {
    gate->allow(1);
    gate->wait_until_held();
    return engine.stats().running == 1;
  }));
  Opens opens(folder);
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(post(server->port(), "/v1/completions", ask("m", 1)).status, 429);
    EXPECT_EQ(get(server->port(), "/health").status, 200);
    opens.count();  // one at a time: equal unread events are merged into one
  }
  EXPECT_EQ(opens.count(), 0);
  // The list is read at most once a second, however many requests need it.
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(get(server->port(), "/v1/models").status, 200);
    EXPECT_EQ(post(server->port(), "/v1/completions", ask("none such", 1)).status, 404);
    opens.count();
  }
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - began).count();
  EXPECT_LE(opens.count(), seconds + 2);
  gate.reset();
  EXPECT_EQ(holder.response().status, 200);
  // A model added to the folder is found at once.
  fs::copy_file(good, folder / "n.gguf");
  EXPECT_TRUE(comes_true([&] { return post(server->port(), "/v1/completions", ask("n", 1)).status == 200; }));
  server.reset();
  fs::remove_all(folder);
}

}  // namespace
}  // namespace millrace
