// Several models in one server: streams of each have the same results as alone, models are loaded and unloaded while
// others run, and all share one budget.
#include <filesystem>
#include <future>
#include <thread>

#include "base/memory_accounts.h"
#include "run/plan/kv_places.h"
#include "server/live_server.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::string golden(const std::string& name) {
  return std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/" + name + "/model.gguf";
}

ModelConfig config(const std::string& name, const std::string& path) {
  ModelConfig out{.name = name, .path = path};
  out.load.threads = out.engine.threads = 1;
  out.engine.max_streams = 4;
  return out;
}

struct Models {
  std::unique_ptr<Server> server;

  explicit Models(const std::vector<ModelConfig>& configs, RegistryOptions options = {}, HttpLimits http = {}) {
    options.found.load.threads = options.found.engine.threads = 1;
    auto registry = ModelRegistry::create(options);
    EXPECT_TRUE(registry.ok());
    for (const ModelConfig& one : configs) {
      auto added = (*registry)->add(one);
      EXPECT_TRUE(added.ok()) << added.error().message;
    }
    http.port = 0;
    http.io_threads = 1;
    auto started = Server::start(std::move(*registry), ServiceOptions{.local_only = true}, http);
    EXPECT_TRUE(started.ok());
    server = std::move(*started);
  }
  int port() const { return server->port(); }
  ModelRegistry& registry() const { return server->service().models(); }
  ModelStatus status(const std::string& name) const {
    for (ModelStatus& one : registry().list())
      if (one.name == name) return std::move(one);
    return {};
  }
  bool becomes(const std::string& name, const std::string& state) const {
    return comes_true([&] { return status(name).state == state; });
  }
};

// Sampled, so that every bit of the logits counts.
std::string body(const std::string& model, int seed, int tokens, bool stream = false) {
  return Json({{"model", model},
               {"prompt", {1, 2, 3 + seed % 5, 4}},
               {"max_tokens", tokens},
               {"temperature", 1.0},
               {"seed", seed},
               {"logprobs", 2},
               {"ignore_eos", true},
               {"stream", stream}})
      .dump();
}

Json choice_of(const Response& response) {
  EXPECT_EQ(response.status, 200) << response.body;
  return response.status == 200 ? response.json()["choices"][0] : Json();
}

// A folder of the test's own.
struct ModelFolder {
  fs::path path;
  ModelFolder() {
    std::string pattern = (fs::temp_directory_path() / "millrace-models-XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  ~ModelFolder() { fs::remove_all(path); }
  std::string file(const std::string& name, const std::string& from) const {
    fs::copy_file(from, path / name, fs::copy_options::overwrite_existing);
    return (path / name).string();
  }
};

TEST(Models, StreamsOfTwoAtOnceAreThoseOfEachAlone) {
  const std::string names[] = {"llama", "qwen2"};
  Json alone[2][4];
  for (int m = 0; m < 2; ++m) {
    Models server({config(names[m], golden(names[m]))});
    for (int seed = 0; seed < 4; ++seed)
      alone[m][seed] = choice_of(post(server.port(), "/v1/completions", body(names[m], seed, 24)));
  }
  EXPECT_NE(alone[0][0]["text"], alone[1][0]["text"]);
  Models both({config("llama", golden("llama")), config("qwen2", golden("qwen2"))});
  Json together[2][4];
  std::vector<std::thread> clients;
  for (int m = 0; m < 2; ++m)
    for (int seed = 0; seed < 4; ++seed)
      clients.emplace_back([&, m, seed] {
        together[m][seed] = choice_of(post(both.port(), "/v1/completions", body(names[m], seed, 24)));
      });
  for (auto& client : clients) client.join();
  for (int m = 0; m < 2; ++m)
    for (int seed = 0; seed < 4; ++seed) EXPECT_EQ(together[m][seed], alone[m][seed]) << names[m] << " seed " << seed;
}

TEST(Models, AreListedAndLoadedAtTheFirstRequest) {
  ModelFolder folder;
  folder.file("small.gguf", golden("llama"));
  folder.file("mmproj-small.gguf", golden("llama"));
  Models server({}, {.folder = folder.path.string()});
  Json list = get(server.port(), "/v1/models").json()["data"];
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0]["id"], "small");
  EXPECT_EQ(list[0]["status"]["value"], "unloaded");
  EXPECT_EQ(get(server.port(), "/api/ps").json()["models"].size(), 0u);
  EXPECT_EQ(get(server.port(), "/health").status, 200);
  choice_of(post(server.port(), "/v1/completions", body("small", 1, 4)));
  EXPECT_EQ(get(server.port(), "/v1/models/small").json()["status"]["value"], "loaded");
  EXPECT_EQ(get(server.port(), "/api/ps").json()["models"][0]["name"], "small");
  folder.file("later.gguf", golden("qwen2"));
  choice_of(post(server.port(), "/v1/completions", body("later:latest", 1, 4)));
  const Response none = post(server.port(), "/v1/completions", body("none", 1, 4));
  EXPECT_EQ(none.status, 404);
  EXPECT_NE(none.body.find("'later'"), std::string::npos) << none.body;
}

TEST(Models, UnloadingLetsStreamsEnd) {
  Models server({config("llama", golden("llama"))});
  const Json whole = choice_of(post(server.port(), "/v1/completions", body("llama", 7, 100)));
  Client client(server.port());
  client.post("/v1/completions", body("llama", 7, 100, true));
  ASSERT_EQ(client.head().status, 200);
  std::string stream = client.chunk();
  EXPECT_TRUE(post(server.port(), "/models/unload", R"({"model": "llama"})").json()["success"]);
  EXPECT_STREQ(server.status("llama").state, "unloaded");
  EXPECT_EQ(post(server.port(), "/models/unload", R"({"model": "llama"})").status, 400);
  for (std::string part = client.chunk(); !part.empty(); part = client.chunk()) stream += part;
  std::string text;
  for (const std::string& event : events_of(stream))
    if (event != "[DONE]") text += Json::parse(event)["choices"][0].value("text", std::string());
  EXPECT_EQ(text, whole["text"].get<std::string>());
  EXPECT_EQ(choice_of(post(server.port(), "/v1/completions", body("llama", 7, 100))), whole) << "and it comes back";
}

TEST(Models, OneIsReplacedUnderItsStreams) {
  ModelFolder folder;
  const std::string path = folder.file("it.gguf", golden("llama"));
  Models server({config("it", path), config("other", golden("qwen2"))});
  const Json old_text = choice_of(post(server.port(), "/v1/completions", body("it", 3, 100)))["text"];
  const Json new_text = choice_of(post(server.port(), "/v1/completions", body("other", 3, 100)))["text"];
  Client client(server.port());
  client.post("/v1/completions", body("it", 3, 100, true));
  ASSERT_EQ(client.head().status, 200);
  std::string stream = client.chunk();
  const Response done = post(server.port(), "/models/load", Json({{"model", "it"}, {"path", golden("qwen2")}}).dump());
  EXPECT_EQ(done.status, 200) << done.body;
  EXPECT_EQ(choice_of(post(server.port(), "/v1/completions", body("it", 3, 100)))["text"], new_text);
  for (std::string part = client.chunk(); !part.empty(); part = client.chunk()) stream += part;
  std::string text;
  for (const std::string& event : events_of(stream))
    if (event != "[DONE]") text += Json::parse(event)["choices"][0].value("text", std::string());
  EXPECT_EQ(Json(text), old_text);
  EXPECT_EQ(post(server.port(), "/models/load", Json({{"model", "it"}, {"path", path + ".none"}}).dump()).status, 400);
  EXPECT_EQ(choice_of(post(server.port(), "/v1/completions", body("it", 3, 100)))["text"], new_text)
      << "the one that was there goes on";
}

TEST(Models, ALoadFailureIsReportedAndTheOthersContinue) {
  ModelFolder folder;
  const std::string path = folder.file("bad.gguf", golden("llama"));
  fs::resize_file(path, fs::file_size(path) / 2);
  Models server({config("good", golden("qwen2")), config("bad", path)});
  const Response bad = post(server.port(), "/v1/completions", body("bad", 1, 4));
  EXPECT_EQ(bad.status, 500);
  EXPECT_NE(bad.json()["error"]["message"].get<std::string>().find("model 'bad': " + path), std::string::npos)
      << bad.body;
  choice_of(post(server.port(), "/v1/completions", body("good", 1, 4)));
  EXPECT_EQ(get(server.port(), "/v1/models/bad").json()["status"]["failed"], true);
  folder.file("bad.gguf", golden("llama"));
  fs::last_write_time(path, fs::file_time_type::clock::now() + std::chrono::seconds(2));
  choice_of(post(server.port(), "/v1/completions", body("bad", 1, 4)));
  EXPECT_FALSE(get(server.port(), "/v1/models/bad").json()["status"].contains("failed"));
}

TEST(Models, ShareABudget) {
  auto one = [](const std::string& name, const std::string& path) {
    ModelConfig out = config(name, path);
    out.engine.kv_tokens = 64 << 10;
    out.engine.constraint_memory = int64_t{8}
                                   << 20;  // where none is said it is a share of the budget, and that differs below
    return out;
  };
  int64_t each = 0;
  {
    Models measured({one("llama", golden("llama"))}, {.memory = int64_t{4} << 30});
    const int64_t before = measured.registry().memory()->total();
    choice_of(post(measured.port(), "/v1/completions", body("llama", 1, 4)));
    each = measured.registry().memory()->total() - before;
    EXPECT_TRUE(measured.registry().unload("llama"));
    EXPECT_TRUE(comes_true([&] { return measured.registry().memory()->total() == before; }))
        << "all of it is given back";
  }
  auto probe = ModelRegistry::create({.memory = int64_t{4} << 30});
  ASSERT_TRUE(probe.ok());
  const int64_t program = (*probe)->memory()->total() - answer_parts(int64_t{4} << 30).total();
  const int64_t budget = (program + 2 * each + each / 2) * 32 / 25;  // 7 of 32 parts are for answers
  Models server({one("a", golden("llama")), one("b", golden("llama")), one("c", golden("llama"))}, {.memory = budget});
  const Json text = choice_of(post(server.port(), "/v1/completions", body("a", 1, 4)))["text"];
  choice_of(post(server.port(), "/v1/completions", body("b", 1, 4)));
  EXPECT_TRUE(comes_true([&] { return server.status("b").open == 0; }))
      << "an answer may be read before its model is let go";
  choice_of(post(server.port(), "/v1/completions", body("a", 1, 4)));
  EXPECT_STREQ(server.status("b").state, "loaded");
  EXPECT_EQ(choice_of(post(server.port(), "/v1/completions", body("c", 1, 4)))["text"], text);
  EXPECT_STREQ(server.status("b").state, "unloaded") << "it was used longest ago";
  EXPECT_STREQ(server.status("a").state, "loaded");
  EXPECT_LE(server.registry().memory()->total(), budget);
  // Both loaded models are in use: no memory can be freed.
  auto a = server.registry().try_acquire("a"), c = server.registry().try_acquire("c");
  const Response refused = post(server.port(), "/v1/completions", body("b", 1, 4));
  EXPECT_EQ(refused.status, 503) << refused.body;
  for (const char* part : {"model 'b'", "budget", " a ", " c "})
    EXPECT_NE(refused.body.find(part), std::string::npos) << part << " in " << refused.body;
  a.reset();
  EXPECT_TRUE(comes_true([&] { return server.status("a").open == 0; }));
  EXPECT_EQ(choice_of(post(server.port(), "/v1/completions", body("b", 1, 4)))["text"], text);
}

TEST(Models, AreUnloadedWhenIdle) {
  ModelConfig brief = config("brief", golden("llama"));
  brief.idle_seconds = 0;
  Models server({brief, config("other", golden("qwen2"))});
  choice_of(post(server.port(), "/v1/completions", body("brief", 1, 4)));
  EXPECT_TRUE(server.becomes("brief", "unloaded"));
  Json params = {{"model", "brief"}, {"keep_alive", -1}, {"stream", false}};
  EXPECT_EQ(post(server.port(), "/api/generate", params.dump()).json()["done_reason"], "load");
  EXPECT_STREQ(server.status("brief").state, "loaded");
  EXPECT_FALSE(server.status("brief").idle_left);
  params["keep_alive"] = "1h30m";
  EXPECT_EQ(post(server.port(), "/api/generate", params.dump()).status, 200);
  EXPECT_NEAR(server.status("brief").idle_left.value_or(0), 5400, 60);
  params["keep_alive"] = 0;
  EXPECT_EQ(post(server.port(), "/api/generate", params.dump()).json()["done_reason"], "unload");
  EXPECT_STREQ(server.status("brief").state, "unloaded");
  params["keep_alive"] = "soon";
  EXPECT_EQ(post(server.port(), "/api/generate", params.dump()).status, 400);
  EXPECT_EQ(get(server.port(), "/api/tags").json()["models"].size(), 2u);
}

TEST(Models, AStreamWaitingForAModelGetsPings) {
  HttpLimits http;
  http.ping_seconds = 0.05;
  Models server({config("first", golden("llama")), config("second", golden("qwen2"))}, {}, http);
  std::promise<void> go;
  server.registry().acquire("first", {}, [&](auto) { go.get_future().wait(); });  // holds the loading thread
  Client client(server.port());
  client.post("/v1/completions", body("second", 1, 4, true));
  EXPECT_EQ(client.head().status, 200);
  EXPECT_EQ(client.chunk(), ": ping\n\n");
  go.set_value();
  std::string rest;
  for (std::string part = client.chunk(); !part.empty(); part = client.chunk()) rest += part;
  EXPECT_TRUE(rest.ends_with("data: [DONE]\n\n")) << rest;
  // A model that cannot be loaded ends its stream with the reason.
  EXPECT_TRUE(server.registry().unload("second"));
  std::promise<void> again;
  server.registry().reload("first", "", [&](auto) { again.get_future().wait(); });
  server.registry().reload("second", "/nowhere.gguf", [](auto) {});
  client.post("/v1/completions", body("second", 1, 4, true));
  EXPECT_EQ(client.head().status, 200);
  EXPECT_EQ(client.chunk(), ": ping\n\n");
  again.set_value();
  rest.clear();
  for (std::string part = client.chunk(); !part.empty(); part = client.chunk()) rest += part;
  EXPECT_NE(rest.find("/nowhere.gguf"), std::string::npos) << rest;
}

TEST(Models, WaitingRequestsAreLimited) {
  RegistryOptions options;
  options.most_waiting = 1;
  auto registry = ModelRegistry::create(options);
  ASSERT_TRUE(registry.ok());
  ASSERT_TRUE((*registry)->add(config("first", golden("llama"))).ok());
  ASSERT_TRUE((*registry)->add(config("second", golden("qwen2"))).ok());
  // The loading thread is held by the first one's waiter, so that the second one's requests wait.
  std::promise<void> go;
  std::promise<Error> too_many;
  std::promise<bool> loaded;
  (*registry)->acquire("first", {}, [&](auto) { go.get_future().wait(); });
  (*registry)->acquire("second", {}, [&](auto served) { loaded.set_value(served.ok()); });
  (*registry)->acquire("second", {}, [&](auto served) { too_many.set_value(served.error()); });
  const Error error = too_many.get_future().get();
  EXPECT_EQ(error.kind, ErrorKind::resource);
  EXPECT_EQ(error.message, "model 'second': 1 requests are already waiting for it to load; try again later");
  go.set_value();
  EXPECT_TRUE(loaded.get_future().get());
}

TEST(Models, NamesAndFilesAreTheirsAlone) {
  ModelFolder folder;
  ModelConfig a = config("a", golden("llama")), b = config("b", golden("qwen2"));
  a.aliases = {"x"};
  b.aliases = {"x"};
  auto registry = ModelRegistry::create({});
  ASSERT_TRUE((*registry)->add(a).ok());
  auto taken = (*registry)->add(b);
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().kind, ErrorKind::user);
  EXPECT_NE(taken.error().message.find("'x'"), std::string::npos);
  b.aliases.clear();
  a.engine.kv_store = b.engine.kv_store = SsdStoreFlags{(folder.path / "store").string(), 16 << 20}.text();
  Models server({a, b});
  choice_of(post(server.port(), "/v1/completions", body("x", 1, 4)));
  const Response refused = post(server.port(), "/v1/completions", body("b", 1, 4));
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("in use by another engine"), std::string::npos) << refused.body;
}

TEST(Models, LoadUnloadReplaceAndStreamsAtOnce) {
  Models server({config("a", golden("llama")), config("b", golden("qwen2"))});
  const Json a = choice_of(post(server.port(), "/v1/completions", body("a", 1, 16))),
             b = choice_of(post(server.port(), "/v1/completions", body("b", 1, 16)));
  std::atomic<bool> over{false};
  std::thread operator_thread([&] {
    for (int i = 0; !over; ++i) {
      if (i % 2 == 0) post(server.port(), "/models/unload", R"({"model": "a"})");
      EXPECT_EQ(post(server.port(), "/models/load", R"({"model": "b", "reload": true})").status, 200);
      get(server.port(), "/metrics");
      get(server.port(), "/api/ps");
    }
  });
  std::vector<std::thread> clients;
  for (int c = 0; c < 4; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < 12; ++i)
        EXPECT_EQ(choice_of(post(server.port(), "/v1/completions", body(c % 2 ? "a" : "b", 1, 16))), c % 2 ? a : b);
    });
  }
  for (auto& client : clients) client.join();
  over = true;
  operator_thread.join();
}

}  // namespace
}  // namespace millrace
