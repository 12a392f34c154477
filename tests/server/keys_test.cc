// Keys with names, roles and limits; limits per request; refusals instead of long waits; settings that change at run
// time.
#include "server/live_server.h"

namespace millrace {
namespace {

constexpr const char* kKeyPrompt = "/v1/completions";
constexpr const char* kEndlessRequest =
    R"({"prompt": "Once upon a time", "max_tokens": -1, "ignore_eos": true, "stream": true, "temperature": 0})";
constexpr const char* kShort =
    R"({"prompt": "Once upon a time", "max_tokens": 4, "ignore_eos": true, "temperature": 0})";

ServiceOptions with_keys(const std::string& keys) {
  ServiceOptions service;
  auto parsed = parse_api_keys("{\"keys\": [" + keys + "]}", "keys");
  EXPECT_TRUE(parsed.ok());
  service.keys = *parsed;
  return service;
}

std::string key(const std::string& name) { return "Authorization: Bearer " + name + "\r\n"; }

KeyUsage usage_of(LiveServer& live, const std::string& name) {
  for (const KeyUsage& usage : live.server->service().key_usage())
    if (usage.name == name) return usage;
  return {};
}

TEST(NamedKeys, RolesDecideWhatIsAllowed) {
  LiveServer live(with_keys(R"({"name": "alice", "key": "a"}, {"name": "ops", "key": "o", "role": "admin"})"));
  const int port = live.port();
  EXPECT_EQ(get(port, "/slots", key("a")).status, 403);
  EXPECT_EQ(get(port, "/metrics", key("a")).status, 403);
  EXPECT_EQ(get(port, "/v1/models", key("a")).status, 200);
  for (const char* path : {"/slots", "/metrics", "/v1/models"})
    EXPECT_EQ(get(port, path, key("o")).status, 200) << path;
  EXPECT_EQ(get(port, "/slots").status, 401);
  EXPECT_EQ(get(port, "/health").status, 200);
}

TEST(NamedKeys, MetricsCanBePublic) {
  ServiceOptions service = with_keys(R"({"name": "alice", "key": "a"})");
  service.metrics_role = Role::user;
  LiveServer user(service);
  EXPECT_EQ(get(user.port(), "/metrics").status, 401);
  EXPECT_EQ(get(user.port(), "/metrics", key("a")).status, 200);
  service.metrics_role = Role::none;
  LiveServer open(service);
  EXPECT_EQ(get(open.port(), "/metrics").status, 200);
}

TEST(NamedKeys, StoredResponsesBelongToTheirKey) {
  LiveServer live(with_keys(R"({"name": "alice", "key": "a"}, {"name": "bob", "key": "b"})"));
  const Response made =
      post(live.port(), "/v1/responses", R"({"input": "Once upon a time", "max_output_tokens": 4})", key("a"));
  ASSERT_EQ(made.status, 200) << made.body;
  const std::string id = made.json()["id"], path = "/v1/responses/" + id;
  const std::string next = Json({{"input", "And"}, {"max_output_tokens", 4}, {"previous_response_id", id}}).dump();
  EXPECT_EQ(get(live.port(), path, key("b")).status, 404);
  EXPECT_EQ(post(live.port(), "/v1/responses", next, key("b")).status, 400);
  EXPECT_EQ(get(live.port(), path, key("a")).json()["id"], id);
  EXPECT_EQ(post(live.port(), "/v1/responses", next, key("a")).status, 200);
}

TEST(NamedKeys, RequestsAMinute) {
  LiveServer live(with_keys(R"({"name": "alice", "key": "a", "requests_per_minute": 2}, {"name": "bob", "key": "b"})"));
  const Response first = post(live.port(), kKeyPrompt, kShort, key("a"));
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.headers.at("x-ratelimit-limit-requests"), "2");
  EXPECT_EQ(first.headers.at("x-ratelimit-remaining-requests"), "1");
  EXPECT_EQ(first.headers.count("x-ratelimit-limit-tokens"), 0u);
  EXPECT_EQ(post(live.port(), kKeyPrompt, kShort, key("a")).status, 200);
  const Response third = post(live.port(), kKeyPrompt, kShort, key("a"));
  EXPECT_EQ(third.status, 429);
  EXPECT_EQ(third.json()["error"]["code"], "rate_limit_exceeded");
  EXPECT_GE(std::stoi(third.headers.at("retry-after")), 1);
  EXPECT_LE(std::stoi(third.headers.at("retry-after")), 30);
  EXPECT_EQ(third.headers.at("x-ratelimit-remaining-requests"), "0");
  EXPECT_EQ(get(live.port(), "/v1/models", key("a")).status, 200);  // reading costs nothing
  EXPECT_EQ(post(live.port(), kKeyPrompt, kShort, key("b")).status, 200);
  EXPECT_EQ(post(live.port(), "/v1/messages",
                 R"({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "a"}]})", key("a"))
                .json()["error"]["type"],
            "rate_limit_error");
}

TEST(NamedKeys, TokensAMinuteAndQuotas) {
  LiveServer live(with_keys(
      R"({"name": "alice", "key": "a", "tokens_per_minute": 8}, {"name": "bob", "key": "b", "tokens_total": 10})"));
  const Response first = post(live.port(), kKeyPrompt, kShort, key("a"));  // 5 of the prompt and 4 of the answer
  ASSERT_EQ(first.status, 200);
  const int64_t used = first.json()["usage"]["total_tokens"];
  ASSERT_GT(used, 8);
  EXPECT_EQ(post(live.port(), kKeyPrompt, kShort, key("a")).json()["error"]["code"], "rate_limit_exceeded");
  EXPECT_EQ(usage_of(live, "alice").prompt_tokens + usage_of(live, "alice").generated_tokens, used);
  EXPECT_EQ(usage_of(live, "alice").refused, 1);

  EXPECT_EQ(post(live.port(), kKeyPrompt, kShort, key("b")).status, 200);
  const Response refused = post(live.port(), kKeyPrompt, kShort, key("b"));
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.json()["error"]["code"], "insufficient_quota");
  EXPECT_EQ(refused.headers.at("x-should-retry"), "false");
}

TEST(NamedKeys, AnswersUnderWay) {
  LiveServer live(with_keys(R"({"name": "alice", "key": "a", "streams": 2}, {"name": "bob", "key": "b"})"));
  Client first(live.port());
  first.post(kKeyPrompt, kEndlessRequest, key("a"));
  ASSERT_EQ(first.head().status, 200);
  EXPECT_EQ(post(live.port(), kKeyPrompt, R"({"prompt": "One", "max_tokens": 1, "n": 2})", key("a")).status, 429);
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(post(live.port(), kKeyPrompt, kShort, key("a")).status, 200);  // one after another
  EXPECT_EQ(post(live.port(), kKeyPrompt, R"({"prompt": "One", "max_tokens": 1, "n": 2})", key("b")).status, 200);
  EXPECT_EQ(usage_of(live, "alice").streams, 1);
  first.leave();
  EXPECT_TRUE(comes_true([&] { return usage_of(live, "alice").streams == 0; }));
  EXPECT_EQ(post(live.port(), kKeyPrompt, R"({"prompt": "One", "max_tokens": 1, "n": 2})", key("a")).status, 200);
}

TEST(NamedKeys, PrefixesAreFoundWithinAKeyOrItsGroupOnly) {
  LiveServer live(with_keys(
      R"({"name": "alice", "key": "a"}, {"name": "bob", "key": "b", "cache_group": "g"}, {"name": "carol", "key": "c", "cache_group": "g"})"));
  std::string prompt;
  for (int i = 0; i < 40; ++i) prompt += "Once upon a time there was a cat. ";
  const std::string body = R"({"max_tokens": 1, "temperature": 0, "prompt": ")" + prompt + "\"}";
  const auto cached = [&](const char* name) -> int64_t {
    return post(live.port(), kKeyPrompt, body, key(name)).json()["usage"]["prompt_tokens_details"]["cached_tokens"];
  };
  EXPECT_EQ(cached("a"), 0);
  EXPECT_GT(cached("a"), 0);
  EXPECT_EQ(cached("b"), 0);
  EXPECT_GT(cached("c"), 0);
}

TEST(NamedKeys, RequestsTheEngineRefusedAreNotCharged) {
  EngineOptions engine;
  engine.max_streams = 1;
  engine.queue = 0;
  LiveServer live(with_keys(R"({"name": "alice", "key": "a"})"), {}, engine);
  Client first(live.port());
  first.post(kKeyPrompt, kEndlessRequest, key("a"));
  ASSERT_EQ(first.head().status, 200);
  const int64_t before = usage_of(live, "alice").prompt_tokens;
  EXPECT_EQ(post(live.port(), kKeyPrompt, kShort, key("a")).json()["error"]["code"], "queue_full");
  EXPECT_EQ(usage_of(live, "alice").prompt_tokens, before);
}

TEST(RequestLimits, AreTheServersOwn) {
  ServiceOptions service;
  service.limits = {
      .answers = 3, .max_tokens = 5, .prompt_tokens = 20, .messages = 2, .stops = 2, .stop_bytes = 4, .logprobs = 3};
  LiveServer live(service);
  const auto status = [&](const std::string& fields) {
    return post(live.port(), kKeyPrompt, "{\"prompt\": \"One\", \"max_tokens\": 1" + fields + "}").status;
  };
  EXPECT_EQ(status(""), 200);
  EXPECT_EQ(status(R"(, "n": 4)"), 400);
  EXPECT_EQ(status(R"(, "stop": ["a", "b", "c"])"), 400);
  EXPECT_EQ(status(R"(, "stop": "abcde")"), 400);
  EXPECT_EQ(status(R"(, "stop": ["a", "abcd"], "n": 3)"), 200);
  EXPECT_EQ(status(R"(, "logprobs": 4)"), 400);
  const Response cut =
      post(live.port(), kKeyPrompt, R"({"prompt": "Once upon a time", "max_tokens": 100, "ignore_eos": true})");
  EXPECT_EQ(cut.json()["usage"]["completion_tokens"], 5);
  EXPECT_EQ(cut.json()["choices"][0]["finish_reason"], "length");
  const Response long_prompt = post(live.port(), kKeyPrompt, "{\"prompt\": \"" + std::string(400, 'z') + "\"}");
  EXPECT_EQ(long_prompt.status, 400);
  EXPECT_EQ(long_prompt.json()["error"]["code"], "context_length_exceeded");
  const char* message = R"({"role": "user", "content": "a"})";
  const std::string three = std::string("[") + message + "," + message + "," + message + "]";
  EXPECT_EQ(post(live.port(), "/v1/chat/completions", "{\"messages\": " + three + "}").status, 400);
}

TEST(Overload, LateRequestsAreRefusedWithTheEstimate) {
  EngineOptions engine;
  engine.max_streams = 1;
  LiveServer live({}, {}, engine);
  const Response unmeasured = post(live.port(), kKeyPrompt,
                                   R"({"prompt": "One day", "max_tokens": 16, "ignore_eos": true, "max_ttft": 0.001})");
  EXPECT_EQ(unmeasured.status, 200);
  EXPECT_EQ(unmeasured.headers.count("millrace-expected-ttft"), 0u);
  const Response idle = post(live.port(), kKeyPrompt, kShort);
  EXPECT_GT(std::stod(idle.headers.at("millrace-expected-ttft")), 0);

  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(std::make_unique<Client>(live.port()));
    clients.back()->post(kKeyPrompt, kEndlessRequest);
  }
  ASSERT_TRUE(comes_true([&] { return live.engine().stats().running + live.engine().stats().waiting == 200; }));
  for (const char* how : {R"("max_ttft": 0.001)", R"("deadline": 0.001)"}) {
    const Response refused =
        post(live.port(), kKeyPrompt, std::string(R"({"prompt": "One day", "max_tokens": 4, )") + how + "}");
    EXPECT_EQ(refused.status, 429) << how;
    EXPECT_GT(std::stod(refused.headers.at("millrace-expected-ttft")),
              std::stod(idle.headers.at("millrace-expected-ttft")));
    EXPECT_GE(std::stoi(refused.headers.at("retry-after")), 1);
  }
  EXPECT_EQ(post(live.port(), kKeyPrompt, kShort, "Millrace-Max-TTFT: 0.001\r\n").status, 429);
  EXPECT_EQ(post(live.port(), kKeyPrompt, kShort, "Millrace-Max-TTFT: soon\r\n").status, 400);
}

TEST(Changes, ApplyToLaterRequests) {
  ServiceOptions service = with_keys(R"({"name": "alice", "key": "a"})");
  LiveServer live(service);
  Client stays(live.port()), streaming(live.port());
  stays.get("/v1/models", key("a"));
  EXPECT_EQ(stays.response().status, 200);
  streaming.post(kKeyPrompt, R"({"prompt": "Once upon a time", "max_tokens": 300, "ignore_eos": true, "stream": true})",
                 key("a"));
  ASSERT_EQ(streaming.head().status, 200);
  service = with_keys(R"({"name": "alice", "key": "fresh", "requests_per_minute": 1}, {"name": "bob", "key": "b"})");
  service.names = {"stories"};
  service.origins = {"https://good.example"};
  HttpLimits http;
  http.body_bytes = 1000;
  live.server->change(service, http, nullptr);
  stays.get("/v1/models", key("a"));
  EXPECT_EQ(stays.response().status, 401);
  EXPECT_EQ(get(live.port(), "/v1/models", key("b") + "Origin: https://good.example\r\n")
                .headers["access-control-allow-origin"],
            "https://good.example");
  EXPECT_EQ(post(live.port(), kKeyPrompt, std::string(2000, ' '), key("b")).status, 413);
  EXPECT_EQ(post(live.port(), kKeyPrompt, kShort, key("fresh")).status, 200);
  EXPECT_EQ(post(live.port(), kKeyPrompt, kShort, key("fresh")).status, 429);
  std::string stream;
  for (std::string part = streaming.chunk(); !part.empty(); part = streaming.chunk()) stream += part;
  EXPECT_EQ(events_of(stream).back(), "[DONE]");
}

}  // namespace
}  // namespace millrace
