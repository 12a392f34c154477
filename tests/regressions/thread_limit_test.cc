// Where the system refused a thread (RLIMIT_NPROC, a container's limit of pids), the exception ended the process. Now
// each start of a thread is the error of the command or request that needs it, and the next request tries again.
#include <filesystem>

#include "base/start_thread.h"
#include "server/live_server.h"

namespace millrace {
namespace {

const std::pair<const char*, const char*> kThreadedRequests[] = {
    {"/v1/completions", R"({"prompt": "Once", "max_tokens": 1})"},
    {"/v1/completions", R"({"prompt": "Once", "max_tokens": 2, "guided_regex": "yes|no"})"},
    {"/v1/completions", R"({"prompt": "Once", "max_tokens": 1, "echo": true, "logprobs": 1})"},
    {"/v1/embeddings", R"({"input": "Once"})"}};

// A server with every part that has threads, under the shortage. Null: it did not start, with an error.
std::unique_ptr<Server> start_limited(const std::filesystem::path& folder) {
  EngineOptions engine_options;
  engine_options.threads = 2;
  LoadOptions load;
  load.threads = 2;
  load.pack_in_background = true;
  auto model = LanguageModel::load("stories", load);
  if (!model.ok()) {
    EXPECT_EQ(model.error().kind, ErrorKind::resource) << model.error().message;
    return nullptr;
  }
  auto engine = Engine::create(*model, engine_options);
  if (!engine.ok()) {
    EXPECT_EQ(engine.error().kind, ErrorKind::resource) << engine.error().message;
    return nullptr;
  }
  ServiceOptions service;
  service.names = {"stories"};
  service.engine = engine_options;
  service.files_dir = folder.string();
  HttpLimits http;
  http.port = 0;
  auto server = Server::start(*model, std::move(*engine), std::move(service), http);
  if (server.ok()) return std::move(*server);
  EXPECT_EQ(server.error().kind, ErrorKind::resource) << server.error().message;
  return nullptr;
}

TEST(ThreadLimit, WithAnyNumberOfThreadsRequestsAreAnsweredOrRefused) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "thread_limit_files";
  int started = 0, served = 0;
  for (int allowed = 0; allowed <= 24; allowed += allowed < 14 ? 1 : 10) {
    ThreadShortage shortage(allowed);
    const auto server = start_limited(folder);
    if (!server) continue;
    ++started;
    EXPECT_EQ(get(server->port(), "/health").status, 200) << allowed;
    for (const auto& [path, body] : kThreadedRequests) {
      const Response response = post(server->port(), path, body);
      EXPECT_TRUE(response.status == 200 || response.status == 429) << allowed << " " << path << ": " << response.body;
      served += response.status == 200;
    }
    const Response stream = post(server->port(), "/v1/completions",
                                 R"({"prompt": "Once", "max_tokens": 1, "stream": true})", "X-Conversation-Id: a\r\n");
    EXPECT_TRUE(stream.status == 200 || stream.status == 429) << allowed << ": " << stream.body;
    EXPECT_EQ(get(server->port(), "/health").status, 200) << allowed;
  }
  EXPECT_GE(started, 4);
  EXPECT_LT(started, 14) << "with no thread it cannot start";
  EXPECT_GE(served, 4) << "the last rounds have all threads they need";
  std::filesystem::remove_all(folder);
}

TEST(ThreadLimit, TheNextRequestTriesAgain) {
  LiveServer live;
  {
    ThreadShortage shortage(0);
    for (const auto& [path, body] : kThreadedRequests) EXPECT_EQ(post(live.port(), path, body).status, 429) << path;
    EXPECT_GE(shortage.refused(), 4);
    EXPECT_EQ(get(live.port(), "/health").status, 200);
    EXPECT_GE(get(live.port(), "/live").status, 400);
  }
  for (const auto& [path, body] : kThreadedRequests) EXPECT_EQ(post(live.port(), path, body).status, 200) << path;
}

// The registry's own thread is the first that a model on demand needs.
TEST(ThreadLimit, AModelOnDemandIsRefusedAndThenLoaded) {
  auto registry = *ModelRegistry::create({});
  ModelConfig config;
  config.name = "stories";
  config.path = "stories";
  config.load.threads = 1;
  config.engine.threads = 1;
  ASSERT_TRUE(registry->add(std::move(config)).ok());
  HttpLimits http;
  http.port = 0;
  auto server = Server::start(std::move(registry), ServiceOptions{}, http);
  ASSERT_TRUE(server.ok()) << server.error().message;
  const int port = (*server)->port();
  const auto& [path, body] = kThreadedRequests[0];
  for (int allowed = 0; allowed < 3; ++allowed) {
    ThreadShortage shortage(allowed);
    const Response response = post(port, path, body);
    EXPECT_TRUE(response.status == 503 || response.status == 429) << allowed << ": " << response.body;
    EXPECT_EQ(get(port, "/health").status, 200);
  }
  EXPECT_EQ(post(port, path, body).status, 200);
}

}  // namespace
}  // namespace millrace
