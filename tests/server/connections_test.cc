// Connections: clients that leave, read slowly, flood or stay connected; and how the server ends them.
#include "server/live_server.h"

namespace millrace {
namespace {

constexpr const char* kConnectionPrompt = "/v1/completions";
constexpr const char* kEndless =
    R"({"prompt": "Once upon a time", "max_tokens": -1, "ignore_eos": true, "stream": true, "temperature": 0})";

bool all_blocks_free(Engine& engine) {
  const EngineStats stats = engine.stats();
  return stats.running == 0 && stats.waiting == 0 && stats.kv_blocks_free + stats.kv_blocks_cached == stats.kv_blocks;
}

TEST(Connections, AReaderWhoLeavesFreesItsBlocks) {
  LiveServer live;
  {
    Client client(live.port());
    client.post(kConnectionPrompt, kEndless);
    ASSERT_EQ(client.head().status, 200);
    ASSERT_FALSE(client.chunk().empty());
    EXPECT_EQ(live.engine().stats().running, 1);
  }
  const int64_t steps = live.engine().stats().steps;
  EXPECT_TRUE(comes_true([&] { return all_blocks_free(live.engine()); }));
  EXPECT_LT(live.engine().stats().generated_tokens, live.engine().context() - 8);
  EXPECT_GE(live.engine().stats().steps, steps);
  EXPECT_TRUE(comes_true([&] { return live.server->counts().connections == 0; }));
}

TEST(Connections, AReaderOfAWholeAnswerWhoLeavesFreesItsBlocks) {
  LiveServer live;
  {
    Client client(live.port());
    client.post(kConnectionPrompt, R"({"prompt": "Once upon a time", "max_tokens": -1, "ignore_eos": true})");
    ASSERT_TRUE(comes_true([&] { return live.engine().stats().running == 1; }));
  }
  EXPECT_TRUE(comes_true([&] { return all_blocks_free(live.engine()); }));
}

// Once the server knows that the reader is gone, the current step ends, and the next one frees its blocks.
TEST(Connections, AReaderWhoLeavesCostsOneMoreStep) {
  LiveServer live;
  auto client = std::make_unique<Client>(live.port());
  client->post(kConnectionPrompt,
               R"({"prompt": "Once upon a time", "max_tokens": -1, "ignore_eos": true, "stream": true, "n": 4})");
  ASSERT_EQ(client->head().status, 200);
  client.reset();
  ASSERT_TRUE(comes_true([&] { return live.server->counts().connections == 0; }));
  const int64_t steps = live.engine().stats().steps;
  EXPECT_TRUE(comes_true([&] { return live.engine().stats().running == 0; }));
  const EngineStats stats = live.engine().stats();
  EXPECT_LE(stats.steps, steps + 2);
  EXPECT_EQ(stats.kv_blocks_free + stats.kv_blocks_cached, stats.kv_blocks);
}

TEST(Connections, ASlowReaderIsCut) {
  HttpLimits http;
  http.queued_bytes = 4096;
  EngineOptions engine;
  LiveServer live({}, http, engine);
  Client client(live.port(), 4096);
  // Many choices of the old shape with log-probabilities: far more bytes than two sockets hold, and nothing reads them.
  client.post(
      kConnectionPrompt,
      R"({"prompt": "Once upon a time", "max_tokens": -1, "ignore_eos": true, "stream": true, "logprobs": 20, "n": 8})");
  EXPECT_TRUE(comes_true([&] { return live.server->counts().slow_readers_cut == 1; }));
  EXPECT_TRUE(comes_true([&] { return all_blocks_free(live.engine()); }));
  EXPECT_TRUE(comes_true([&] { return live.server->counts().connections == 0; }));
}

TEST(Connections, SlowReadersShareALimit) {
  HttpLimits http;
  http.queued_bytes = int64_t{1} << 30;
  http.all_queued_bytes = 16384;
  LiveServer live({}, http, {});
  Client slow(live.port(), 4096), quick(live.port());
  slow.post(
      kConnectionPrompt,
      R"({"prompt": "Once upon a time", "max_tokens": -1, "ignore_eos": true, "stream": true, "logprobs": 20, "n": 8})");
  EXPECT_TRUE(comes_true([&] { return live.server->counts().slow_readers_cut == 1; }));
  EXPECT_TRUE(comes_true([&] { return all_blocks_free(live.engine()); }));
  quick.post(kConnectionPrompt,
             R"({"prompt": "Once upon a time", "max_tokens": 50, "ignore_eos": true, "stream": true, "logprobs": 20})");
  const Response read = quick.response();
  EXPECT_NE(read.body.find("[DONE]"), std::string::npos) << "an event larger than its share is sent";
  EXPECT_EQ(live.server->counts().slow_readers_cut, 1);
}

TEST(Connections, ALongReplyIsWrittenInParts) {
  LiveServer live;
  const auto body = [](int64_t tokens) {
    return Json{{"prompt", "Once"}, {"n_predict", tokens}, {"n_probs", 100}, {"ignore_eos", true}, {"temperature", 0}}
        .dump();
  };
  const auto probabilities = [](const Response& response) {
    return response.json()["completion_probabilities"].size();
  };
  Client client(live.port());
  for (const int64_t tokens : {100, 2, 100}) {  // on one connection
    client.post("/completion", body(tokens));
    const Response answered = client.response();
    ASSERT_EQ(answered.status, 200);
    EXPECT_EQ(answered.headers.contains("content-length"), tokens == 2) << "a short one has its length";
    EXPECT_EQ(probabilities(answered), static_cast<size_t>(tokens));
  }
  Client old(live.port());
  old.send("POST /completion HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(body(100).size()) + "\r\n\r\n" + body(100));
  Response whole = old.head();
  EXPECT_EQ(whole.headers.count("transfer-encoding"), 0u);
  whole.body = old.rest();
  EXPECT_EQ(probabilities(whole), 100u) << "the end of the connection ends the reply";
}

TEST(Connections, DrainFinishesStreamsAndRefusesNewRequests) {
  LiveServer live;
  Client idle(live.port()), client(live.port());
  client.post(kConnectionPrompt,
              R"({"prompt": "Once upon a time", "max_tokens": 300, "ignore_eos": true, "stream": true})");
  ASSERT_EQ(client.head().status, 200);
  live.server->drain();
  std::string stream;
  for (std::string part = client.chunk(); !part.empty(); part = client.chunk()) stream += part;
  EXPECT_EQ(events_of(stream).back(), "[DONE]");
  EXPECT_FALSE(idle.receive());  // closed
  EXPECT_FALSE(client.receive());
  EXPECT_TRUE(comes_true([&] { return live.server->drained(); }));
}

TEST(Connections, ProbesAreAnsweredOnNewConnectionsWhileTheServerDrains) {
  LiveServer live;
  Client held(live.port());
  held.post(kConnectionPrompt, kEndless);
  ASSERT_EQ(held.head().status, 200);
  live.server->drain();
  for (int i = 0; i < 3; ++i) {
    Client probe(live.port());
    probe.get("/health/ready");
    const Response ready = probe.response();
    EXPECT_EQ(ready.status, 503);
    EXPECT_EQ(ready.headers.at("connection"), "close");
    EXPECT_FALSE(probe.receive());
    EXPECT_EQ(get(live.port(), "/health/live").status, 200);
    EXPECT_EQ(post(live.port(), kConnectionPrompt, R"({"prompt": "One"})").status, 503);
  }
  EXPECT_FALSE(live.server->drained());
  Client silent(live.port());  // says nothing: it does not hold the server up
  ASSERT_TRUE(comes_true([&] { return live.server->counts().connections == 2; }));
  held.leave();
  EXPECT_TRUE(comes_true([&] { return live.server->drained(); }));
}

TEST(Connections, AServerThatStopsEndsItsStreams) {
  auto live = std::make_unique<LiveServer>();
  Client client(live->port());
  client.post(kConnectionPrompt, kEndless);
  ASSERT_EQ(client.head().status, 200);
  live.reset();
  while (client.receive()) {
  }
}

TEST(Connections, AHundredStreamsAreQueued) {
  EngineOptions engine;
  engine.max_streams = 1;
  LiveServer live({}, {}, engine);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 100; ++i) {
    clients.push_back(std::make_unique<Client>(live.port()));
    clients.back()->post(kConnectionPrompt, kEndless);
  }
  EXPECT_TRUE(comes_true([&] { return live.server->counts().answering == 100; }));
  EXPECT_TRUE(comes_true([&] { return live.engine().stats().waiting + live.engine().stats().running == 100; }));
  clients.clear();
  EXPECT_TRUE(comes_true([&] { return all_blocks_free(live.engine()) && live.server->counts().connections == 0; }));
}

TEST(Connections, AFullQueueIsRefusedWithRetryAfter) {
  EngineOptions engine;
  engine.max_streams = 1;
  engine.queue = 0;
  LiveServer live({}, {}, engine);
  Client first(live.port());
  first.post(kConnectionPrompt, kEndless);
  ASSERT_EQ(first.head().status, 200);
  const Response second = post(live.port(), kConnectionPrompt, kEndless);
  EXPECT_EQ(second.status, 429);
  EXPECT_EQ(second.headers.count("retry-after"), 1u);
  EXPECT_EQ(second.json()["error"]["code"], "queue_full");
}

TEST(Connections, ThousandsOfIdleConnections) {
  LiveServer live;
  for (int i = 0; i < 2000; ++i) {
    Client client(live.port());
    if (i % 2 == 0) client.send("GET /health HT");
  }
  EXPECT_TRUE(comes_true([&] { return live.server->counts().connections == 0; }));
  EXPECT_EQ(get(live.port(), "/metrics").body.find("millrace_requests_refused_total{"), std::string::npos);
}

TEST(Connections, ConnectionsPerAddressAreLimited) {
  HttpLimits http;
  http.peer_connections = 3;
  LiveServer live({}, http);
  auto first = std::make_unique<Client>(live.port());
  Client second(live.port()), third(live.port());
  for (Client* client : {first.get(), &second, &third}) {
    client->get("/health");
    EXPECT_EQ(client->response().status, 200);
  }
  {
    Client fourth(live.port());
    EXPECT_EQ(fourth.response().status, 503);
    EXPECT_FALSE(fourth.receive());
  }
  EXPECT_EQ(live.server->counts().rejected, 1);
  first.reset();
  ASSERT_TRUE(comes_true([&] { return live.server->counts().connections == 2; }));
  EXPECT_EQ(get(live.port(), "/health").status, 200);
}

TEST(Connections, StaysOpenForManyRequests) {
  LiveServer live;
  Client client(live.port());
  for (int i = 0; i < 3; ++i) {
    client.post(kConnectionPrompt, R"({"prompt": "One", "max_tokens": 1})");
    EXPECT_EQ(client.response().status, 200);
    client.post(kConnectionPrompt, R"({"prompt": "One", "max_tokens": 1, "stream": true})");
    EXPECT_EQ(client.response().status, 200);
  }
  client.get("/health");  // two at once are answered in turn
  client.get("/v1/models");
  EXPECT_EQ(client.response().json()["status"], "ok");
  EXPECT_EQ(client.response().json()["object"], "list");
}

TEST(Connections, StayOpenAfterARefusal) {
  ServiceOptions service;
  service.api_keys = {"k"};
  LiveServer live(service);
  Client client(live.port());
  const std::string key = "x-api-key: k\r\n";
  for (const auto& [path, method, status] :
       {std::tuple{"/nothing", "GET", 404}, {"/v1/completions", "PATCH", 405}, {"/v1/models", "GET", 200}}) {
    client.get(path, "", method);
    Response answer = client.response();
    EXPECT_EQ(answer.status, 401);
    EXPECT_EQ(answer.headers["connection"], "keep-alive");
    client.get(path, key, method);
    answer = client.response();
    EXPECT_EQ(answer.status, status);
    EXPECT_EQ(answer.headers["allow"], status == 405 ? "POST" : "");
  }
  client.post("/v1/completions", "{}");  // refused by its head, with the body on its way
  EXPECT_EQ(client.response().headers["connection"], "close");
}

TEST(Connections, Http10ClientsGetAStreamThatEndsWithTheConnection) {
  LiveServer live;
  Client client(live.port());
  const std::string body = R"({"prompt": "One", "max_tokens": 2, "stream": true})";
  client.send("POST /v1/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  Response head = client.head();
  EXPECT_EQ(head.headers.count("transfer-encoding"), 0u);
  while (client.receive()) {
  }
}

TEST(Connections, SilentStreamsGetPings) {
  HttpLimits http;
  http.ping_seconds = 0.02;
  EngineOptions engine;
  engine.max_streams = 1;
  LiveServer live({}, http, engine);
  Client first(live.port()), second(live.port());
  first.post(kConnectionPrompt, kEndless);
  ASSERT_EQ(first.head().status, 200);
  second.post(kConnectionPrompt, R"({"prompt": "One", "max_tokens": 2, "stream": true, "timeout": 30})");
  ASSERT_EQ(second.head().status, 200);
  EXPECT_EQ(second.chunk(), ": ping\n\n");
  first.leave();
  std::string rest;
  for (std::string part = second.chunk(); !part.empty(); part = second.chunk()) rest += part;
  EXPECT_EQ(events_of(rest).back(), "[DONE]");
}

TEST(Limits, HeadsAndBodiesThatAreTooLarge) {
  HttpLimits http;
  http.body_bytes = 2000;
  http.header_bytes = 2000;
  LiveServer live({}, http);
  EXPECT_EQ(post(live.port(), kConnectionPrompt, std::string(3000, ' ')).status, 413);
  Client chunked(live.port());
  chunked.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nbb8\r\n" +
               std::string(3000, ' ') + "\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.response().status, 413);
  EXPECT_EQ(get(live.port(), "/health", "X-Long: " + std::string(3000, 'a') + "\r\n").status, 431);
  Client garbage(live.port());
  garbage.send("\x16\x03\x01 hello\r\n\r\n");
  EXPECT_EQ(garbage.response().status, 400);
  Client odd(live.port());
  odd.send("GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(odd.response().status, 400);
}

TEST(Limits, TheTotalOfBodiesIsBounded) {
  HttpLimits http;
  http.body_bytes = 2000;
  http.bodies_bytes = 3000;
  LiveServer live({}, http);
  Client first(live.port()), second(live.port());
  first.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 1900\r\n\r\n");
  EXPECT_EQ(first.head().status, 100);
  second.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1900\r\n\r\n");
  const Response refused = second.response();
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.headers.count("retry-after"), 1u);
  first.send(R"({"prompt": "One", "max_tokens": 1})" + std::string(1900 - 34, ' '));
  EXPECT_EQ(first.response().status, 200);
  EXPECT_EQ(
      post(live.port(), kConnectionPrompt, R"({"prompt": "One", "max_tokens": 1})" + std::string(1800, ' ')).status,
      200);
}

TEST(Limits, IncompleteRequestsTimeOut) {
  HttpLimits http;
  http.read_seconds = 0.05;
  LiveServer live({}, http);
  Client client(live.port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{");
  EXPECT_EQ(client.response().status, 408);
  EXPECT_FALSE(client.receive());
}

TEST(Keys, CoverEveryPathButHealth) {
  ServiceOptions service;
  service.api_keys = {"first-key", "second-key"};
  LiveServer live(service);
  const int port = live.port();
  EXPECT_EQ(get(port, "/health").status, 200);
  for (const char* path : {"/v1/models", "/", "/metrics", "/nothing", "/v1/chat/completions"})
    EXPECT_EQ(get(port, path).status, 401) << path;
  EXPECT_EQ(get(port, "/v1/models", "Authorization: Bearer second-key\r\n").status, 200);
  EXPECT_EQ(get(port, "/v1/models", "x-api-key: first-key\r\n").status, 200);
  for (const char* wrong : {"Authorization: Bearer first\r\n", "Authorization: Bearer first-key2\r\n",
                            "Authorization: Bearer \r\n", "x-api-key: \r\n", "Authorization: Basic first-key\r\n"})
    EXPECT_EQ(get(port, "/v1/models", wrong).status, 401) << wrong;
  EXPECT_EQ(get(port, "/v1/models").json()["error"]["code"], "invalid_api_key");
  EXPECT_EQ(post(port, kConnectionPrompt, kEndless).status, 401);
}

TEST(Origins, ALocalServerIsCalledByLocalNames) {
  ServiceOptions service;
  service.local_only = true;
  LiveServer live(service);
  for (const char* host : {"localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "a.localhost"}) {
    Client client(live.port());
    client.send(std::string("GET /v1/models HTTP/1.1\r\nHost: ") + host + "\r\n\r\n");
    EXPECT_EQ(client.response().status, 200) << host;
  }
  for (const char* host : {"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example"}) {
    Client client(live.port());
    client.send(std::string("GET /v1/models HTTP/1.1\r\nHost: ") + host + "\r\n\r\n");
    EXPECT_EQ(client.response().status, 403) << host;
  }
}

TEST(Origins, WebPagesOfOtherOriginsAreRefused) {
  ServiceOptions service;
  LiveServer closed(service);
  EXPECT_EQ(get(closed.port(), "/v1/models", "Origin: https://evil.example\r\n").status, 403);
  EXPECT_EQ(get(closed.port(), "/v1/models", "Origin: http://localhost\r\n").status, 200);  // its own page
  service.origins = {"https://good.example"};
  LiveServer open(service);
  const Response answer = get(open.port(), "/v1/models", "Origin: https://good.example\r\n");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "https://good.example");
  Client client(open.port());
  client.get("/v1/chat/completions", "Origin: https://good.example\r\nAccess-Control-Request-Method: POST\r\n",
             "OPTIONS");
  EXPECT_EQ(client.response().status, 204);
}

}  // namespace
}  // namespace millrace
