// The objects behind the handles of the C interface.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "capi/event_queue.h"
#include "millrace.h"
#include "millrace/engine.h"
#include "techniques/technique_use.h"

namespace millrace {

// An engine that its handle and the handles of its streams share. The handle's end stops it; streams may then still
// read what has arrived.
struct SharedEngine {
  explicit SharedEngine(int64_t unread_events) : events(unread_events) {}

  // Does nothing after stop().
  void cancel(RequestId id) {
    std::lock_guard lock(mutex);
    if (engine) engine->cancel(id);
  }
  // Waits until the engine has stopped. Its own thread does not lock the mutex.
  void stop() {
    std::unique_ptr<Engine> last;
    {
      std::lock_guard lock(mutex);
      last.swap(engine);
      model.reset();
    }
  }

  EventQueue events;
  int64_t max_open_streams = 0;
  std::atomic<int64_t> open_streams{0};
  std::vector<AppliedTechnique> applied;
  std::vector<AdapterUse> adapters;  // applied to requests that choose none
  Engine* on_its_thread = nullptr;   // `engine`, for its own thread, which must not lock `mutex`

  std::mutex mutex;  // guards the following
  std::shared_ptr<const LanguageModel> model;
  std::unique_ptr<Engine> engine;  // last, so that its thread ends before the other members do
};

}  // namespace millrace

struct millrace_model {
  std::shared_ptr<const millrace::LanguageModel> model;
  std::string warnings;  // one per line
};

struct millrace_engine {
  std::shared_ptr<millrace::SharedEngine> shared;
};

struct millrace_stream {
  std::shared_ptr<millrace::SharedEngine> shared;
  std::shared_ptr<millrace::StreamQueue> queue;
  millrace::RequestId id = 0;
};
