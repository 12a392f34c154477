// NpuGroups: runs subgraphs on two groups of threads at once, in the order that SubgraphQueue decides. The device's
// group is one thread of its own with a thread pool; the float group is the caller with its pool.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "base/result.h"
#include "base/thread_pool.h"
#include "models/npu/schedule.h"

namespace millrace {

class NpuGroups {
 public:
  // Errors: resource (no thread can be started).
  static Result<std::unique_ptr<NpuGroups>> create(int device_threads);
  ~NpuGroups();
  NpuGroups(const NpuGroups&) = delete;

  ThreadPool& device_pool() { return device_pool_; }
  // Calls body(i) for every subgraph: for those of the NPU on the device's thread, for others on the caller's. Returns
  // when all have ended. `body` must not throw. One call at a time.
  void run(std::span<const NpuSubgraph> subgraphs, NpuOrder order, const std::function<void(int32_t)>& body);

 private:
  explicit NpuGroups(int device_threads) : device_pool_(device_threads) {}
  void serve();
  void drain(bool on_npu, std::unique_lock<std::mutex>& lock);

  ThreadPool device_pool_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  SubgraphQueue* queue_ = nullptr;  // queue of the present call; null: there is none
  const std::function<void(int32_t)>* body_ = nullptr;
  bool device_runs_ = false;  // the device's thread works for the present call
  bool stop_ = false;
};

}  // namespace millrace
