// GET /techniques, POST /compare, and the live feed of one of several models.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "server/live_server.h"
#include "server/measure/comparison_request.h"
#include "techniques/families.h"

namespace millrace {
namespace {

ServiceOptions local() {
  ServiceOptions options;
  options.local_only = true;
  return options;
}

// A comparison of seconds: one round of four tokens, or more.
std::string body(const std::string& with, const std::string& more = "") {
  return R"({"with": [")" + with + R"("], "suites": ["memory"], "repeat": 1, "prompt": 8, "generate": 4)" + more + "}";
}

// {event, data} of each frame of a stream.
std::vector<std::pair<std::string, Json>> frames_of(const std::string& stream) {
  std::vector<std::pair<std::string, Json>> out;
  for (size_t at = 0; at < stream.size();) {
    const size_t end = std::min(stream.find("\n\n", at), stream.size());
    const std::string frame = stream.substr(at, end - at);
    if (frame.starts_with("event: "))
      out.emplace_back(frame.substr(7, frame.find('\n') - 7),
                       Json::parse(frame.substr(frame.find("data: ") + 6), nullptr, false));
    at = end + 2;
  }
  return out;
}

TEST(Techniques, AreListedWithTheirOptionsAndPlaces) {
  LiveServer live;
  const Json all = get(live.port(), "/techniques").json();
  const auto contains = [](const Json& list, const char* name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  EXPECT_TRUE(contains(all["request_families"], "evictor"));
  EXPECT_FALSE(contains(all["request_families"], "kv_format"));
  EXPECT_TRUE(contains(all["compare_families"], "kv_format"));
  bool found = false;
  for (const Json& one : all["techniques"]) {
    if (one["family"] != "kv_format" || one["name"] != "kivi") continue;
    found = true;
    EXPECT_EQ(one["lossless"], false);
    EXPECT_EQ(one["options"][0]["type"], "integer");
    EXPECT_FALSE(one["options"][0]["help"].get<std::string>().empty());
  }
  EXPECT_TRUE(found);
  std::set<std::string> with_files;
  for (const Json& suite : all["suites"])
    if (!suite["over_http"]) with_files.insert(suite["name"]);
  EXPECT_EQ(with_files, (std::set<std::string>{"choice", "exact", "spec"}));
}

TEST(Compare, StreamsProgressAndThenTheResult) {
  LiveServer live(local());
  const Response answer = post(live.port(), "/compare", body("name=8 bits + kv_format=q8_0"));
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.headers.at("content-type"), "text/event-stream");
  const auto frames = frames_of(answer.body);
  ASSERT_GE(frames.size(), 3u);
  EXPECT_EQ(frames.front().first, "progress");
  EXPECT_EQ(frames.front().second["part"], "loading");
  bool speed = false;
  for (const auto& [event, data] : frames) speed |= event == "progress" && data["part"] == "2/2 speed";
  EXPECT_TRUE(speed);
  ASSERT_EQ(frames.back().first, "result") << answer.body;
  const Json& configs = frames.back().second["configs"];
  ASSERT_EQ(configs.size(), 2u);
  EXPECT_EQ(configs[0]["spec"], "plain");
  EXPECT_EQ(configs[1]["name"], "8 bits");
  EXPECT_LT(configs[1]["memory"]["kv_bytes_per_token"], configs[0]["memory"]["kv_bytes_per_token"]);
  EXPECT_GT(configs[0]["speed"]["decode_tokens_per_s"]["median"], 0);
}

TEST(Compare, RefusesWhatNamesFilesAndPrograms) {
  LiveServer live(local());
  const std::pair<const char*, const char*> refused[] = {
      {"engine=llama_cpp:bin=/opt", "runs a program"},
      {"weights=mapped", "writes a file"},
      {"drafter=rest:file=/etc/passwd", "names a file"},
      {"drafter=rest:file=.", "names a file"},
      {"drafter=rest:file=secret.bin", "names a file"},
      {"drafter=best:of=ngram+rest:file=secret.bin", "names a file"},
      {"drafter=best:of=draft:model=folder;k=3", "names a file"},
      {"model=elsewhere", "elsewhere"},
      {"kv_format=nothing", "nothing"},
  };
  for (const auto& [with, why] : refused) {
    const Response answer = post(live.port(), "/compare", body(with));
    EXPECT_EQ(answer.status, 400) << with;
    EXPECT_NE(answer.body.find(why), std::string::npos) << answer.body;
  }
  for (const char* suite : {"choice:questions.jsonl", "serve:trace.csv"}) {
    const Response answer =
        post(live.port(), "/compare", R"({"with": ["kv_format=q8_0"], "suites": [")" + std::string(suite) + "\"]}");
    EXPECT_EQ(answer.status, 400) << suite;
    EXPECT_NE(answer.body.find("reads a file"), std::string::npos) << answer.body;
  }
  EXPECT_EQ(post(live.port(), "/compare", R"({"with": []})").status, 400);
  EXPECT_EQ(post(live.port(), "/compare", R"({"with": ["kv_format=q8_0"], "repeat": 1000})").status, 400);
  EXPECT_EQ(post(live.port(), "/compare", R"({"with": ["kv_format=q8_0"], "suites": ["nosuch"]})").status, 400);
}

// Every option whose help says that it is a file or a folder is refused, also those of techniques that are yet to come.
TEST(Compare, RefusesEveryOptionThatNamesAFile) {
  LiveServer live(local());
  const std::vector<std::string_view> families = family_names_in(kCompareCommand);
  int64_t tried = 0;
  for (const TechniqueInfo& info : all_techniques()) {
    if (std::ranges::find(families, info.family) == families.end()) continue;
    for (const OptionSpec& option : info.options) {
      const bool is_file = option.help.find("file") != std::string::npos ||
                           option.help.find("folder") != std::string::npos || option.name == "model" ||
                           option.name == "file";
      if (option.type != OptionSpec::Type::text || !is_file) continue;
      const std::string with = fmt::format("{}={}:{}=some.bin", info.family, info.name, option.name);
      const Response answer = post(live.port(), "/compare", body(with));
      EXPECT_EQ(answer.status, 400) << with;
      // All of the family `weights` is refused, because its members write a packed cache.
      const char* why = info.family == "weights" ? "this family writes a file" : "names a file";
      EXPECT_NE(answer.body.find(why), std::string::npos) << with << ": " << answer.body;
      ++tried;
    }
  }
  EXPECT_GE(tried, 10);
}

TEST(Compare, NeedsAnAdminKeyOrALocalServer) {
  LiveServer open;
  EXPECT_EQ(post(open.port(), "/compare", body("kv_format=q8_0")).status, 403);
  ServiceOptions options;
  options.api_keys = {"secret"};
  LiveServer keyed(options);
  EXPECT_EQ(post(keyed.port(), "/compare", body("kv_format=q8_0")).status, 401);
  EXPECT_EQ(post(keyed.port(), "/compare", body("kv_format=q8_0"), "Authorization: Bearer secret\r\n").status, 200);
}

TEST(Compare, OneRunsAtATimeAndEndsWithItsClient) {
  LiveServer live(local());
  Client client(live.port());
  client.post("/compare", R"({"with": ["kv_format=q8_0"], "repeat": 100, "prompt": 200, "generate": 200})");
  ASSERT_EQ(client.head().status, 200);
  ASSERT_FALSE(client.chunk().empty());
  EXPECT_EQ(post(live.port(), "/compare", body("kv_format=q8_0")).status, 429);
  client.leave();
  EXPECT_TRUE(comes_true([&] { return post(live.port(), "/compare", body("kv_format=q8_0")).status == 200; }));
}

TEST(Compare, EndsWhenTheServerDrains) {
  LiveServer live(local());
  Client client(live.port());
  client.post("/compare", R"({"with": ["kv_format=q8_0"], "repeat": 100, "prompt": 200, "generate": 200})");
  ASSERT_EQ(client.head().status, 200);
  live.server->drain();
  std::string text;
  for (std::string part = client.chunk(); !part.empty(); part = client.chunk()) text += part;
  const auto frames = frames_of(text);
  ASSERT_FALSE(frames.empty());
  EXPECT_EQ(frames.back().first, "error") << text;
  EXPECT_TRUE(comes_true([&] { return live.server->drained(); }));
}

TEST(Compare, EndsWithTheServer) {
  LiveServer live(local());
  Client client(live.port());
  client.post("/compare", R"({"with": ["kv_format=q8_0"], "repeat": 100, "prompt": 200, "generate": 200})");
  ASSERT_EQ(client.head().status, 200);
  live.server.reset();
  std::string text;
  for (std::string part = client.chunk(); !part.empty(); part = client.chunk()) text += part;
  for (const auto& [event, data] : frames_of(text)) EXPECT_NE(event, "result") << data;
}

TEST(Live, IsOfTheModelThatIsNamed) {
  auto registry = ModelRegistry::create({});
  ASSERT_TRUE(registry.ok());
  for (const char* name : {"first", "second"}) {
    ModelConfig config{.name = name, .path = "stories"};
    config.load.threads = config.engine.threads = 1;
    ASSERT_TRUE((*registry)->add(config).ok());
  }
  HttpLimits http;
  http.port = 0;
  auto server = Server::start(std::move(*registry), local(), http);
  ASSERT_TRUE(server.ok());
  const int port = (*server)->port();
  EXPECT_EQ(get(port, "/live?model=third").status, 404);
  ASSERT_EQ(post(port, "/v1/completions", R"({"model": "second", "prompt": "Once", "max_tokens": 3})").status, 200);
  // The frames up to the first one with this event.
  const auto watch = [&](const char* path, const std::string& event) {
    Client watcher(port);
    watcher.get(path);
    EXPECT_EQ(watcher.head().status, 200);
    std::string text;
    for (int i = 0; i < 300; ++i) {
      text += watcher.chunk();
      const auto frames = frames_of(text);
      if (!frames.empty() && frames.back().first == event) return frames;
    }
    return frames_of(text);
  };
  const auto second = watch("/live?model=second", "snapshot");
  ASSERT_GE(second.size(), 2u);
  EXPECT_EQ(second.front().second["model"], "second");
  EXPECT_EQ(second.front().second["loaded"], true);
  EXPECT_EQ(second.back().first, "snapshot");
  EXPECT_GT(second.back().second["totals"]["generated_tokens"], 0);
  const auto first = watch("/live", "busy");
  ASSERT_GE(first.size(), 2u);
  EXPECT_EQ(first.front().second["model"], "first");
  EXPECT_EQ(first.back().first, "busy");
  EXPECT_EQ(first.back().second["loaded"], false);
  const auto all = watch("/live?model=*", "snapshot");
  ASSERT_GE(all.size(), 2u);
  for (const auto& [event, data] : all) EXPECT_EQ(data["model"], "second") << event;
  Client watcher(port);
  watcher.get("/live");
  ASSERT_EQ(watcher.head().status, 200);
  ASSERT_EQ(post(port, "/v1/completions", R"({"model": "first", "prompt": "Once", "max_tokens": 3})").status, 200);
  std::string text;
  const auto loaded = [&] {  // a second hello describes the engine that was loaded meanwhile
    for (const auto& [event, data] : frames_of(text))
      if (event == "hello" && data["loaded"] == true) return true;
    return false;
  };
  for (int i = 0; i < 300 && !loaded(); ++i) text += watcher.chunk();
  EXPECT_TRUE(loaded());
}

TEST(ModelsList, SaysHowMuchMemoryThereIs) {
  LiveServer live;
  const Json list = get(live.port(), "/models").json();
  EXPECT_EQ(list["store"], false);
  EXPECT_EQ(list["data"][0]["stored"], false);
  const Json& memory = list["memory"];
  EXPECT_GT(memory["total"].get<int64_t>(), memory["resident"].get<int64_t>());
  EXPECT_GT(memory["resident"].get<int64_t>(), 0);
  EXPECT_EQ(memory["budget"], 0);
}

}  // namespace
}  // namespace millrace
