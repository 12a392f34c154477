// Streams resumed after a lost connection: every byte once, in order, and the work ends when no client comes back.
#include "server/generation/stream_store.h"
#include "server/live_server.h"

namespace millrace {
namespace {

constexpr const char* kChatBody = "/v1/chat/completions";
constexpr const char* kId = "X-Conversation-Id: talk-1\r\n";

std::string params(int tokens) {
  return Json{{"messages", {{{"role", "user"}, {"content", "Once upon a time"}}}},
              {"max_tokens", tokens},
              {"temperature", 0},
              {"ignore_eos", true},
              {"stream", true}}
      .dump();
}

std::string rest_of(Client& client) {
  std::string out;
  for (std::string part = client.chunk(); !part.empty(); part = client.chunk()) out += part;
  return out;
}

// The text only, without the parts that differ between requests.
std::string text_in(const std::string& stream) {
  std::string out;
  for (const std::string& event : events_of(stream)) {
    const Json json = Json::parse(event, nullptr, false);
    if (json.is_object() && !json["choices"].empty() && json["choices"][0]["delta"].contains("content"))
      out += json["choices"][0]["delta"]["content"].get<std::string>();
  }
  return out;
}

TEST(EventIds, SayWhereTheNextEventBegins) {
  for (int64_t at : {int64_t{0}, int64_t{3}, int64_t{80}, int64_t{985}, int64_t{99999}}) {
    const std::string out = with_event_ids("data: a\n\n: ping\n\nevent: b\ndata: c\n\n", at);
    EXPECT_NE(out.find("\n\n: ping\n\n"), std::string::npos);
    size_t from = 0;
    int ids = 0;
    while ((from = out.find("id: ", from)) != std::string::npos) {
      const size_t end = out.find("\n\n", from) + 2;
      EXPECT_EQ(std::stoll(out.substr(from + 4)), at + static_cast<int64_t>(end)) << out;
      from = end;
      ++ids;
    }
    EXPECT_EQ(ids, 2);
  }
}

TEST(Streams, ResumeWhereTheConnectionWasLost) {
  LiveServer live;
  Client whole(live.port());
  whole.post(kChatBody, params(40));
  whole.head();
  const std::string text = text_in(rest_of(whole));
  std::string stream;
  {
    Client client(live.port());
    client.post(kChatBody, params(40), kId);
    const Response head = client.head();
    EXPECT_EQ(head.headers.at("x-conversation-id"), "talk-1");
    while (events_of(stream).size() < 5) stream += client.chunk();
  }  // the connection is lost
  const size_t last = stream.rfind("id: ");
  const std::string had = stream.substr(0, stream.find("\n\n", last) + 2);
  EXPECT_EQ(std::stoull(stream.substr(last + 4)), had.size());
  Client again(live.port());
  again.get("/v1/stream/talk-1", "Last-Event-ID: " + std::to_string(had.size()) + "\r\n");
  const Response head = again.head();
  ASSERT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-type"), "text/event-stream");
  const std::string all = had + rest_of(again);
  EXPECT_EQ(text_in(all), text);
  EXPECT_TRUE(all.ends_with("data: [DONE]\n\n"));
  // After its end too, from any byte on, and as often as wanted.
  for (size_t from : {size_t{0}, had.size(), all.size()}) {
    Client later(live.port());
    later.get("/v1/stream?conv_id=talk-1&from=" + std::to_string(from));
    EXPECT_EQ(later.head().status, 200);
    EXPECT_EQ(rest_of(later), all.substr(from));
  }
  EXPECT_EQ(get(live.port(), "/v1/stream/talk-1?from=" + std::to_string(all.size() + 1)).status, 400);
  EXPECT_EQ(get(live.port(), "/v1/stream/talk-1?from=x").status, 400);
  EXPECT_EQ(get(live.port(), "/v1/stream/other").status, 404);
  const Json found = post(live.port(), "/v1/streams/lookup", R"({"conversation_ids": ["talk-1", "other"]})").json();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]["conversation_id"], "talk-1");
  EXPECT_EQ(found[0]["is_done"], true);
  EXPECT_EQ(found[0]["total_bytes"], all.size());
  EXPECT_GE(found[0]["completed_at"], found[0]["started_at"]);
}

TEST(Streams, WorkEndsWhenNoClientComesBack) {
  ServiceOptions options;
  options.streams.grace_seconds = 0.05;
  LiveServer live(options);
  {
    Client client(live.port());
    client.post(kChatBody, params(100000), kId);
    client.head();
    EXPECT_FALSE(client.chunk().empty());
  }
  EXPECT_TRUE(comes_true([&] { return live.engine().stats().running == 0; }));
  EXPECT_TRUE(comes_true([&] { return live.server->service().streams().size() == 0; }));
}

TEST(Streams, RemovingOneEndsItsWork) {
  LiveServer live;
  Client client(live.port());
  client.post(kChatBody, params(100000), kId);
  client.head();
  EXPECT_FALSE(client.chunk().empty());
  Client other(live.port());
  other.get("/v1/stream/talk-1", "", "DELETE");
  EXPECT_EQ(other.head().status, 204);
  rest_of(client);  // reads to the end
  EXPECT_TRUE(comes_true([&] { return live.engine().stats().running == 0; }));
  EXPECT_EQ(live.server->service().streams().size(), 0);
}

TEST(Streams, ANewStreamReplacesTheIdAndKeysAreSeparate) {
  ServiceOptions options;
  options.api_keys = {"one", "two"};
  LiveServer live(options);
  const std::string one = "Authorization: Bearer one\r\n", two = "Authorization: Bearer two\r\n";
  Client first(live.port());
  first.post(kChatBody, params(100000), kId + one);
  first.head();
  EXPECT_FALSE(first.chunk().empty());
  EXPECT_EQ(get(live.port(), "/v1/stream/talk-1", two).status, 404);
  Client second(live.port());
  second.post(kChatBody, params(4), kId + one);
  second.head();
  const std::string all = rest_of(second);
  rest_of(first);
  EXPECT_TRUE(comes_true([&] { return live.engine().stats().running == 0; }));
  Client later(live.port());
  later.get("/v1/stream/talk-1", one);
  later.head();
  EXPECT_EQ(rest_of(later), all);
}

TEST(Streams, OldBytesAreDroppedAndMemoryIsBounded) {
  ServiceOptions options;
  options.streams.stream_bytes = 4096;
  options.streams.total_bytes = 3 * 8192;
  LiveServer live(options);
  std::string all;
  for (int i = 0; i < 8; ++i) {
    Client client(live.port());
    client.post(kChatBody, params(60), "X-Conversation-Id: talk-" + std::to_string(i) + "\r\n");
    EXPECT_EQ(client.head().headers.count("x-conversation-id"), 1u) << i;
    all = rest_of(client);
    EXPECT_LE(live.server->service().streams().size(), 5);
  }
  EXPECT_GT(all.size(), 8192u);
  EXPECT_EQ(get(live.port(), "/v1/stream/talk-7?from=0").status, 400);
  Client later(live.port());
  later.get("/v1/stream/talk-7?from=" + std::to_string(all.size() - 1000));
  EXPECT_EQ(later.head().status, 200);
  EXPECT_EQ(rest_of(later), all.substr(all.size() - 1000));
}

TEST(Streams, ErrorsBeforeTheFirstByteAreNotKept) {
  LiveServer live;
  EXPECT_EQ(post(live.port(), kChatBody, R"({"stream": true})", kId).status, 400);
  EXPECT_EQ(get(live.port(), "/v1/stream/talk-1").status, 404);
  const Response whole =
      post(live.port(), kChatBody, R"({"messages": [{"role": "user", "content": "One day"}], "max_tokens": 2})", kId);
  EXPECT_EQ(whole.status, 200);  // not a stream: nothing to read on
  EXPECT_EQ(get(live.port(), "/v1/stream/talk-1").status, 404);
}

}  // namespace
}  // namespace millrace
