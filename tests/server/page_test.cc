// The page for browsers and the live feed of the engine.
#include "server/page.h"

#include "run/plan/kv_places.h"
#include "server/live_server.h"

namespace millrace {
namespace {

constexpr const char* kHtml = "Accept: text/html,application/xhtml+xml\r\n";

std::string first_event(Client& client) {
  std::string text;
  while (text.find("\n\n") == std::string::npos) {
    const std::string part = client.chunk();
    if (part.empty()) return text;
    text += part;
  }
  return text;
}

TEST(Page, BrowsersGetItAndClientsGetTheirText) {
  LiveServer live;
  EXPECT_EQ(get(live.port(), "/").body, "Ollama is running");
  EXPECT_EQ(get(live.port(), "/", "Accept: */*\r\n").body, "Ollama is running");
  const Response page = get(live.port(), "/", kHtml);
  EXPECT_EQ(page.status, 200);
  EXPECT_NE(page.headers.at("vary").find("Accept"), std::string::npos);
  if (page_files().empty()) {
    EXPECT_EQ(page.headers.at("content-type"), "text/plain; charset=utf-8");
    EXPECT_NE(page.body.find("built without the page"), std::string::npos);
    EXPECT_NE(page.body.find("/v1/chat/completions"), std::string::npos);
    GTEST_SKIP() << "the rest needs the page (MILLRACE_PAGE)";
  }
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_EQ(page.headers.at("cache-control"), "no-cache");
  EXPECT_NE(page.headers.at("content-security-policy").find("script-src 'self'; style-src 'self'"), std::string::npos);
  EXPECT_EQ(page.body.find("<script>"), std::string::npos);
}

TEST(Page, FilesAreEncodedAsRequestedAndCached) {
  if (page_files().empty()) GTEST_SKIP() << "built without the page";
  LiveServer live;
  for (const PageFile& file : page_files()) {
    const std::string html = file.path == std::string("/") ? kHtml : "";
    const Response plain = get(live.port(), file.path, html);
    EXPECT_EQ(plain.status, 200) << file.path;
    EXPECT_EQ(plain.body.size(), file.plain.size());
    EXPECT_EQ(plain.headers.count("content-encoding"), 0u);
    EXPECT_EQ(plain.headers.at("x-content-type-options"), "nosniff");
    const Response gzip = get(live.port(), file.path, html + "Accept-Encoding: gzip\r\n");
    EXPECT_EQ(gzip.headers.at("content-encoding"), "gzip");
    EXPECT_EQ(gzip.body.substr(0, 2), "\x1f\x8b");
    const Response brotli = get(live.port(), file.path, html + "Accept-Encoding: gzip, deflate, br\r\n");
    EXPECT_EQ(brotli.headers.at("content-encoding"), "br");
    EXPECT_EQ(brotli.body.size(), file.brotli.size());
    const Response again = get(live.port(), file.path, html + "If-None-Match: " + plain.headers.at("etag") + "\r\n");
    EXPECT_EQ(again.status, 304);
    EXPECT_TRUE(again.body.empty());
    if (file.path != std::string("/") && std::string(file.path).starts_with("/assets/"))
      EXPECT_NE(plain.headers.at("cache-control").find("immutable"), std::string::npos);
  }
  EXPECT_EQ(get(live.port(), "/assets/none.js").status, 404);
  EXPECT_EQ(get(live.port(), "/assets/..%2f..%2fetc%2fpasswd").status, 404);
}

TEST(Page, NeedsNoKeyButTheFeedDoes) {
  ServiceOptions options;
  options.api_keys = {"secret"};
  LiveServer live(options);
  EXPECT_EQ(get(live.port(), "/", kHtml).status, page_files().empty() ? 401 : 200);
  EXPECT_EQ(get(live.port(), "/").status, 401);
  EXPECT_EQ(get(live.port(), "/", std::string(kHtml) + "Accept-Encoding: br\r\n").status,
            page_files().empty() ? 401 : 200);
  EXPECT_EQ(post(live.port(), "/", "{}", kHtml).status, 401);
  EXPECT_EQ(get(live.port(), "/v1/models", kHtml).status, 401);
  EXPECT_EQ(get(live.port(), "/live").status, 401);
  Client client(live.port());
  client.get("/live", "Authorization: Bearer secret\r\n");
  EXPECT_EQ(client.head().status, 200);
}

TEST(Page, Codings) {
  EXPECT_TRUE(takes_coding("gzip, br", "br"));
  EXPECT_TRUE(takes_coding("br;q=0.5", "br"));
  EXPECT_FALSE(takes_coding("br;q=0", "br"));
  EXPECT_FALSE(takes_coding("br;q=0.000", "br"));
  EXPECT_FALSE(takes_coding("*", "br"));
  EXPECT_FALSE(takes_coding("brotli, xbr", "br"));
  EXPECT_FALSE(takes_coding("", "br"));
  EXPECT_TRUE(takes_coding(" br , gzip ;q=1", "gzip"));
}

TEST(Live, ListsEveryMemberInUse) {
  EngineOptions engine;
  engine.drafter = "ngram:k=3";
  engine.evictor = "streamingllm:sinks=4,window=60";
  engine.kv_tier = memory_tier(64);
  engine.prefix_cache = false;
  LiveServer live({}, {}, engine);
  Client watcher(live.port());
  watcher.get("/live");
  ASSERT_EQ(watcher.head().status, 200);
  std::map<std::string, std::string> used;
  const Json hello = Json::parse(events_of(first_event(watcher))[0]);
  for (const Json& one : hello["techniques"]) used[one["family"]] = one["name"];
  EXPECT_EQ(used, (std::map<std::string, std::string>{{"acceptance", "exact"},
                                                      {"drafter", "ngram"},
                                                      {"evictor", "streamingllm"},
                                                      {"kv_format", "f16"},
                                                      {"policy", "fcfs"},
                                                      {"tier", "memory"}}));
}

TEST(Live, ReportsStepsStreamsAndBlocks) {
  LiveServer live;
  Client watcher(live.port());
  watcher.get("/live");
  const Response head = watcher.head();
  ASSERT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-type"), "text/event-stream");
  const std::string hello = first_event(watcher);
  EXPECT_TRUE(hello.starts_with("event: hello\n"));
  const Json begin = Json::parse(events_of(hello)[0]);
  EXPECT_EQ(begin["options"]["policy"], "fcfs");
  std::map<std::string, std::string> used;
  for (const Json& one : begin["techniques"]) used[one["family"]] = one["name"];
  EXPECT_EQ(used,
            (std::map<std::string, std::string>{{"kv_format", "f16"}, {"policy", "fcfs"}, {"prefix_evictor", "lru"}}));
  Client client(live.port());
  client.post("/v1/completions", R"({"prompt": "Once upon a time", "max_tokens": -1, "ignore_eos": true, "n": 16})");
  int64_t prefill = 0, decode = 0, last = 0;
  bool ran = false;
  ASSERT_TRUE(comes_true([&] {
    const std::string event = first_event(watcher);
    if (!event.starts_with("event: snapshot\n")) return event.empty();
    const Json look = Json::parse(events_of(event)[0]);
    for (const Json& step : look["steps"]) {
      EXPECT_GT(step[0].get<int64_t>(), last);
      last = step[0].get<int64_t>();
      prefill += step[3].get<int64_t>();
      decode += step[4].get<int64_t>();
    }
    int64_t cells = 0;
    for (const Json& run : look["blocks"]["cells"]) cells += run[0].get<int64_t>();
    EXPECT_EQ(cells, look["blocks"]["total"].get<int64_t>());
    ran |= look["running"].get<int64_t>() > 0 && look["waiting"].get<int64_t>() > 0;
    return ran && prefill > 0 && decode > 0;
  }));
  EXPECT_TRUE(ran);
  EXPECT_GT(decode, 0);
  watcher.leave();
  client.leave();
  EXPECT_TRUE(comes_true([&] { return live.server->counts().connections == 0; }));
}

TEST(Live, ViewersAreLimited) {
  LiveServer live;
  std::vector<std::unique_ptr<Client>> watchers;
  for (size_t i = 0; i < LiveFeed::kMaxWatchers; ++i) {
    watchers.push_back(std::make_unique<Client>(live.port()));
    watchers.back()->get("/live");
    EXPECT_EQ(watchers.back()->head().status, 200);
  }
  EXPECT_EQ(get(live.port(), "/live").status, 429);
  watchers.clear();
  EXPECT_TRUE(comes_true([&] {
    Client client(live.port());
    client.get("/live");
    return client.head().status == 200;
  }));
}

TEST(Live, EndsWhenTheServerDrains) {
  LiveServer live;
  Client watcher(live.port());
  watcher.get("/live");
  ASSERT_EQ(watcher.head().status, 200);
  ASSERT_FALSE(watcher.chunk().empty());
  live.server->drain();
  while (!watcher.chunk().empty()) continue;
  EXPECT_TRUE(comes_true([&] { return live.server->drained(); }));
}

}  // namespace
}  // namespace millrace
