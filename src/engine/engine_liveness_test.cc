// What the engine's liveness says: in a step, between two steps, and after it has stopped for lack of memory.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <new>
#include <thread>

#include "millrace/engine.h"
#include "test_paths.h"

namespace millrace {
namespace {

std::unique_ptr<Engine> live_engine(const std::string& plans = "") {
  auto model = LanguageModel::load(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama3/model.gguf",
                                   {.threads = 1, .context = 128});
  EXPECT_TRUE(model.ok());
  EngineOptions options;
  options.threads = 1;
  options.record_plans = plans;
  auto engine = Engine::create(*model, options);
  EXPECT_TRUE(engine.ok());
  return engine.ok() ? std::move(*engine) : nullptr;
}

Request live_request() {
  Request request;
  request.prompt = {1, 2, 3};
  request.max_tokens = 100;
  request.ignore_eos = true;
  return request;
}

// A step writes its plan into a pipe that nothing reads: once the pipe is full, the step lasts.
TEST(EngineLiveness, AStepHasADuration) {
  const std::string path = ::testing::TempDir() + "engine_liveness_" + std::to_string(getpid());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const int pipe = ::open(path.c_str(), O_RDWR | O_NONBLOCK);
  ASSERT_GE(pipe, 0);
  ASSERT_GE(::fcntl(pipe, F_SETPIPE_SZ, 4096), 0);
  const auto engine = live_engine(path);
  EXPECT_EQ(engine->liveness().step_seconds, 0);
  std::atomic<bool> ended = false;
  double between = 0;
  const auto sink = [&](TokenEvent&& event) {
    between = std::max(between, engine->liveness().step_seconds);
    if (event.last) ended = true;
  };
  Request request = live_request();
  request.n = 8;
  ASSERT_TRUE(engine->submit(request, sink).ok());
  const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  double first = 0;
  while (first == 0 && std::chrono::steady_clock::now() < late) first = engine->liveness().step_seconds;
  EXPECT_GT(first, 0);
  EXPECT_LT(first, 60);  // since the step began, not since another time
  EXPECT_FALSE(ended);
  char read[4096];
  while (!ended && std::chrono::steady_clock::now() < late)
    if (::read(pipe, read, sizeof(read)) < 0) std::this_thread::yield();
  EXPECT_TRUE(ended);
  EXPECT_EQ(between, 0);  // events come after their step
  EXPECT_FALSE(engine->liveness().stopped);
  ::close(pipe);
  ::unlink(path.c_str());
}

TEST(EngineLiveness, AnEngineWithoutMemoryHasStopped) {
  const auto engine = live_engine();
  EXPECT_FALSE(engine->liveness().stopped);
  std::promise<TokenEvent> last;
  const auto sink = [&last, first = true](TokenEvent&& event) mutable {
    if (std::exchange(first, false)) throw std::bad_alloc();
    if (event.last) last.set_value(std::move(event));
  };
  ASSERT_TRUE(engine->submit(live_request(), sink).ok());
  const TokenEvent event = last.get_future().get();
  EXPECT_EQ(event.finish, FinishReason::error);
  EXPECT_EQ(event.error.kind, ErrorKind::resource);
  EXPECT_EQ(event.error.message, "engine: out of memory in a step; the engine has stopped");
  EXPECT_TRUE(engine->liveness().stopped);
  EXPECT_EQ(engine->liveness().step_seconds, 0);
  const auto refused = engine->submit(live_request());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "engine: has stopped");
}

}  // namespace
}  // namespace millrace
