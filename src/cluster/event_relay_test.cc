#include "cluster/event_relay.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

std::string event(int i, const std::string& more = "") {
  return "data: {\"text\":\"t" + std::to_string(i) + "\"" + more + "}\n\n";
}

// All of it, in parts of `part` bytes.
std::string relayed(EventRelay& relay, const std::string& stream, size_t part) {
  std::string out;
  for (size_t at = 0; at < stream.size(); at += part)
    EXPECT_TRUE(relay.push(std::string_view(stream).substr(at, part), out).ok());
  return out;
}

TEST(EventRelay, PassesWholeEventsOn) {
  const std::string stream = event(0) + event(1) + "data: [DONE]\n\n";
  for (const size_t part : {1u, 2u, 7u, 1000u}) {
    EventRelay relay(EventRelay::Kind::events);
    EXPECT_EQ(relayed(relay, stream, part), stream);
    EXPECT_FALSE(relay.in_event());
    EXPECT_EQ(relay.passed_on(), 3);
  }
  EventRelay relay(EventRelay::Kind::events);
  EXPECT_EQ(relayed(relay, event(0) + "data: {\"te", 1000), event(0));
  EXPECT_TRUE(relay.in_event());
}

// At every byte at which the first node may be lost.
TEST(EventRelay, AnotherNodeContinuesWhereTheFirstWasLost) {
  const std::string stream = event(0) + event(1) + event(2) + "data: [DONE]\n\n";
  for (size_t lost = 0; lost <= stream.size(); ++lost) {
    EventRelay relay(EventRelay::Kind::events);
    std::string out = relayed(relay, stream.substr(0, lost), 5);
    relay.restart();
    out += relayed(relay, stream, 3);
    EXPECT_EQ(out, stream) << lost;
  }
}

TEST(EventRelay, PingsAreLeftOutAndDoNotCount) {
  EventRelay relay(EventRelay::Kind::events);
  std::string out =
      relayed(relay, ": ping\n\n" + event(0) + "event: ping\ndata: {\"type\":\"ping\"}\n\n" + event(1), 4);
  relay.restart();
  out += relayed(relay, event(0) + event(1) + ": ping\n\n" + event(2), 4);
  EXPECT_EQ(out, event(0) + event(1) + event(2));
}

TEST(EventRelay, FieldsThatVaryAreNotCompared) {
  EventRelay relay(EventRelay::Kind::lines);
  const std::string first = "{\"response\":\"a\",\"eval_duration\":12,\"usage\":{\"cached\":0}}\n";
  const std::string again = "{\"response\":\"a\",\"eval_duration\":99,\"usage\":{\"cached\":64}}\n";
  EXPECT_EQ(relayed(relay, first, 9), first);
  relay.restart();
  EXPECT_EQ(relayed(relay, again + "{\"done\":true}\n", 9), "{\"done\":true}\n");
}

TEST(EventRelay, AnotherTokenIsAnError) {
  EventRelay relay(EventRelay::Kind::events);
  std::string out;
  ASSERT_TRUE(relay.push(event(0) + event(1), out).ok());
  relay.restart();
  const auto taken = relay.push(event(0) + event(7), out);
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().kind, ErrorKind::internal);
  EXPECT_NE(taken.error().message.find("event 1"), std::string::npos) << taken.error().message;
}

TEST(EventRelay, AGoodbyeIsKeptFromTheClient) {
  const std::string goodbye = "data: {\"error\":{\"message\":\"the server is shutting down\"}}\n\ndata: [DONE]\n\n";
  EventRelay relay(EventRelay::Kind::events, goodbye);
  std::string out = relayed(relay, event(0) + goodbye, 6);
  EXPECT_TRUE(relay.gave_up());
  EXPECT_EQ(out, event(0));
  relay.restart();
  EXPECT_FALSE(relay.gave_up());
  EXPECT_EQ(relayed(relay, event(0) + event(1), 6), event(1));
}

TEST(EventRelay, AnEventWithoutEndIsRefused) {
  EventRelay relay(EventRelay::Kind::events);
  std::string out;
  EXPECT_FALSE(relay.push(std::string(EventRelay::kMaxEventBytes + 1, 'x'), out).ok());
}

TEST(EventRelay, DeepJsonIsComparedAsText) {
  const std::string deep = "data: {\"a\":" + std::string(100000, '[') + "}\n\n";
  EXPECT_EQ(event_digest(deep), event_digest(deep));
  EXPECT_NE(event_digest(deep), event_digest(deep + " "));
}

}  // namespace
}  // namespace millrace
