// A stream with an X-Conversation-Id that was still queued when its id was used again or deleted, or that another
// client resumed, got pings for ever. The tests of resumable streams replaced and deleted only streams that had begun.
#include "regressions/step_gate.h"
#include "server/live_server.h"

namespace millrace {
namespace {

constexpr const char* kStreamed = R"({"prompt": "Once upon a time", "max_tokens": 2, "stream": true})";
constexpr const char* kStreamId = "X-Conversation-Id: queued\r\n";

TEST(QueuedStream, EveryWayOutOfTheQueueEndsTheAnswer) {
  for (const double ping_seconds : {0.02, 1000.0})
    for (const char* way : {"replaced", "deleted", "resumed"}) {
      SCOPED_TRACE(std::string(way) + (ping_seconds < 1 ? " after a ping" : " before a byte"));
      HttpLimits http;
      http.ping_seconds = ping_seconds;
      LiveServer live({}, http);
      StepGate gate(live.engine());  // nothing is answered until it opens
      Client first(live.port()), second(live.port());
      first.post("/v1/completions", kStreamed, kStreamId);
      ASSERT_TRUE(comes_true([&] { return live.server->service().streams().size() == 1; }));
      const bool pinged = ping_seconds < 1;
      if (pinged) {
        ASSERT_EQ(first.head().status, 200);
        ASSERT_TRUE(first.chunk().starts_with(":"));
      }
      if (std::string_view(way) == "replaced") second.post("/v1/completions", kStreamed, kStreamId);
      if (std::string_view(way) == "deleted") second.get("/v1/stream/queued", "", "DELETE");
      if (std::string_view(way) == "resumed") second.get("/v1/stream/queued");
      if (pinged) {
        std::string last;
        for (std::string part = first.chunk(); !part.empty(); part = first.chunk()) last = part;
        EXPECT_NE(last.find("\"error\""), std::string::npos) << last;
      } else {
        EXPECT_EQ(first.response().status, 410);
      }
      gate.open();
      if (std::string_view(way) == "deleted") {
        EXPECT_EQ(second.response().status, 204);
        continue;
      }
      ASSERT_EQ(second.head().status, 200);
      std::string rest;
      for (std::string part = second.chunk(); !part.empty(); part = second.chunk()) rest += part;
      EXPECT_TRUE(rest.ends_with("data: [DONE]\n\n")) << rest;
    }
}

// A request that is refused must not end the stream whose id it has.
TEST(QueuedStream, ARefusedRequestReplacesNothing) {
  LiveServer live;
  Client first(live.port());
  first.post("/v1/completions", R"({"prompt": "Once", "max_tokens": -1, "ignore_eos": true, "stream": true})",
             kStreamId);
  ASSERT_EQ(first.head().status, 200);
  ASSERT_FALSE(first.chunk().empty());
  EXPECT_EQ(post(live.port(), "/v1/completions", Json{{"prompt", std::string(100000, 'x')}, {"stream", true}}.dump(),
                 kStreamId)
                .status,
            400);
  EXPECT_FALSE(first.chunk().empty());
  EXPECT_EQ(live.engine().stats().running, 1);
}

}  // namespace
}  // namespace millrace
