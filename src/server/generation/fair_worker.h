// FairWorker: one thread that waits for work which is no answer (embeddings, rankings, a prompt's log-probabilities,
// prompts to compress), most of which the engine computes in its steps. It runs
// one piece of a request at a time, so that a small request does not wait for all of a large one.
//
//   between tenants   weighted fair queueing: the next piece belongs to the tenant with the least service so far. A
//                     new tenant starts at the minimum of the others
//   within a tenant   the request with the lowest mark, which is the tenant's service at its arrival plus its own
//                     cost. Small requests overtake large ones, and none starves, because later marks are higher
//
// Priorities do not change this order. In the engine, running work has the priority of the most urgent work that waits
// for it here (most_urgent()).
//
// Costs are tokens. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"

namespace millrace {

struct HttpRequest;

// The tenant that work belongs to in a worker's queue, and its weight relative to other tenants.
struct WorkShare {
  std::string tenant;
  double weight = 1;
  // Attributes of the work in the engine, as for the caller's generations.
  std::string engine_tenant;  // Request::tenant
  int64_t priority = 0;
  std::optional<std::chrono::steady_clock::time_point> until = std::nullopt;  // the request's time limit

  static WorkShare of(const HttpRequest& request);  // by API key, or by address without one
  bool late() const { return until && std::chrono::steady_clock::now() >= *until; }
};

struct FairLimits {
  size_t requests = 1024;             // waiting
  size_t requests_of_one = 64;        // waiting, for one tenant
  int64_t tokens = int64_t{1} << 24;  // waiting; a single request may have more
};

class FairWorker {
 public:
  struct Job {
    WorkShare share;
    std::vector<int64_t> pieces;                  // cost of each; at least one
    std::shared_ptr<std::atomic<bool>> unwanted;  // the client has left: the request is dropped
    // Called on the thread for each piece in order; false: skip the remaining pieces.
    std::function<bool(size_t piece)> run;
  };

  // `what` is for error messages: "requests are waiting for embeddings".
  FairWorker(std::string what, const FairLimits& limits = {}) : what_(std::move(what)), limits_(limits) {}
  ~FairWorker() { stop(); }

  // The first call starts the thread. Errors: resource (the queue is full, no thread could be started).
  Result<void> add(Job job);
  // The highest priority among the waiting requests and the running one; 0: there are none.
  int64_t most_urgent() const;
  // Stops after the current piece and drops waiting requests. Must not be called from the thread itself.
  void stop();

 private:
  struct Waiting {
    Job job;
    size_t next = 0;   // piece
    int64_t left = 0;  // tokens
    int64_t mark = 0;
    bool running = false;
  };
  struct Tenant {
    double service = 0;                          // tokens divided by weight, relative to the other tenants
    uint64_t turn = 0;                           // when it was last served, or arrived
    int64_t done = 0;                            // tokens, since its queue was last empty
    std::vector<std::unique_ptr<Waiting>> jobs;  // in order of arrival, including the running one
  };

  void loop();
  // Called with the mutex held.
  std::vector<std::unique_ptr<Waiting>> take_unwanted();
  double least_service() const;
  Waiting* begin_next();
  std::unique_ptr<Waiting> end_piece(Waiting& job, bool more);

  const std::string what_;
  const FairLimits limits_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, Tenant> tenants_;  // this and the members below: guarded by `mutex_`
  size_t requests_ = 0;                    // waiting or running
  int64_t tokens_ = 0;                     // tokens so far
  uint64_t turn_ = 0;
  bool stop_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace millrace
