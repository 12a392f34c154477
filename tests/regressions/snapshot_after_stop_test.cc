// A snapshot that was pending when the engine stopped was never answered: the page's live feed waited for it for ever
// and showed a still picture. The tests used engines that keep running.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "millrace/engine.h"
#include "properties/stream_bits.h"

namespace millrace {
namespace {

using namespace testing;

TEST(SnapshotAfterStop, EveryPendingSnapshotIsAnsweredWhenTheEngineStops) {
  auto model = load_for(golden_model("smollm3"), *select_isa());
  ASSERT_TRUE(model);
  auto made = Engine::create(model, {.threads = 1, .context = 64});
  ASSERT_TRUE(made.ok());
  Engine* engine = made->get();
  std::mutex mutex;
  std::condition_variable moved;
  bool held = false, go = false;
  std::atomic<int> answered = 0;
  // The engine's thread waits in the first sink until the other snapshots are requested and the shutdown has begun.
  (void)engine->snapshot([&](EngineSnapshot&&) {
    std::unique_lock lock(mutex);
    held = true;
    moved.notify_all();
    moved.wait_for(lock, std::chrono::seconds(60), [&] { return go; });
  });
  {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(moved.wait_for(lock, std::chrono::seconds(60), [&] { return held; }));
  }
  for (int i = 0; i < 3; ++i) (void)engine->snapshot([&](EngineSnapshot&&) { ++answered; });
  std::thread end([&] { made->reset(); });
  while (!engine->liveness().stopped)
    std::this_thread::yield();  // the destructor waits for the sink: the engine still exists
  {
    std::lock_guard lock(mutex);
    go = true;
  }
  moved.notify_all();
  end.join();
  EXPECT_EQ(answered, 3);
}

}  // namespace
}  // namespace millrace
