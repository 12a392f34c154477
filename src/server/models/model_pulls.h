// Downloads of models that clients asked for, each on its own thread. Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

#include "hub/pull.h"

namespace millrace {

class ModelPulls {
 public:
  struct Work {
    HubName name;
    PullOptions options;                            // its `cancelled` is set here
    std::shared_ptr<std::atomic<bool>> gone;        // the client disconnected
    std::function<void(Result<PulledModel>)> done;  // on the download's thread
  };

  ~ModelPulls() { stop(); }

  // Errors: resource (too many are running), cancelled (stopped).
  Result<void> start(Work work);
  // Ends all downloads and waits for their threads.
  void stop();

 private:
  struct Running {
    std::thread thread;
    std::atomic<bool> over{false};
  };
  std::mutex mutex_;  // guards running_
  std::list<Running> running_;
  std::atomic<bool> stop_{false};
};

}  // namespace millrace
