// The live view froze for good once the engine had dropped a snapshot that the feed had requested, as it does when it
// stops or gets too many requests: the feed waited for that snapshot. No test had an engine that does not answer.
#include "regressions/step_gate.h"
#include "server/live_server.h"

namespace millrace {
namespace {

// The event name of the next frame: "hello", "snapshot", "busy".
std::string next_event(Client& client, std::string& held) {
  while (held.find("\n\n") == std::string::npos) {
    const std::string part = client.chunk();
    if (part.empty()) return "";
    held += part;
  }
  const size_t end = held.find("\n\n");
  const std::string frame = held.substr(0, end);
  held.erase(0, end + 2);
  return frame.starts_with("event: ") ? frame.substr(7, frame.find('\n') - 7) : "?";
}

TEST(LiveFeed, ContinuesAfterADroppedSnapshot) {
  LiveServer live;
  Client watcher(live.port());
  watcher.get("/live");
  ASSERT_EQ(watcher.head().status, 200);
  std::string held;
  const auto comes = [&](const std::string& wanted) {
    for (int i = 0; i < 300; ++i)
      if (next_event(watcher, held) == wanted) return true;
    return false;
  };
  ASSERT_TRUE(comes("snapshot"));
  auto gate = std::make_unique<StepGate>(live.engine());
  gate->wait_until_held();  // the engine is between two steps and delivers no snapshot
  while (live.engine().snapshot([](EngineSnapshot&&) {})) {
  }  // enough that the feed's request is refused
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(comes("busy"));
  gate.reset();
  EXPECT_TRUE(comes("snapshot"));
}

}  // namespace
}  // namespace millrace
