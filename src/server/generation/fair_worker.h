// FairWorker: one thread for work beside the engine (embeddings, rankings, a prompt's log-probabilities). It runs one
// piece of a request at a time, so that a small request does not wait for the whole of a large one.
//
//   between tenants    fair queueing by weight: the next piece belongs to the tenant served least so far. A tenant that
//                      comes anew starts at the least of the others
//   within a tenant    the request with the lowest mark, which is the tenant's service at its arrival plus its own
//   cost.
//                      Small requests overtake large ones, and no request starves, because later marks are higher
//
// Costs are tokens. Thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"

namespace millrace {

struct HttpRequest;

// Whose work it is, and its share of the machine beside others.
struct WorkShare {
  std::string tenant;
  double weight = 1;

  static WorkShare of(const HttpRequest& request);  // its key's; without one, its address
};

struct FairLimits {
  size_t requests = 1024;             // that wait
  size_t requests_of_one = 64;        // of a tenant
  int64_t tokens = int64_t{1} << 24;  // of all that wait; one request alone may have more
};

class FairWorker {
 public:
  struct Job {
    WorkShare share;
    std::vector<int64_t> pieces;                  // what each costs; at least one
    std::shared_ptr<std::atomic<bool>> unwanted;  // the client has left: the request is dropped
    // On the thread, for each piece in order; false: there is nothing left to do.
    std::function<bool(size_t piece)> run;
  };

  // `what` is for messages: "texts wait to be embedded".
  FairWorker(std::string what, const FairLimits& limits = {})
      : what_(std::move(what)), limits_(limits), thread_([this] { loop(); }) {}
  ~FairWorker() { stop(); }

  // Errors: resource (too much waits).
  Result<void> add(Job job);
  // Ends after the piece under way; what waits is dropped. Not from the thread itself.
  void stop();

 private:
  struct Waiting {
    Job job;
    size_t next = 0;   // piece
    int64_t left = 0;  // tokens
    int64_t mark = 0;
    bool under_way = false;
  };
  struct Tenant {
    double had = 0;                              // tokens by weight, as far as they count against the others
    uint64_t turn = 0;                           // when it had the last of them, or came
    int64_t done = 0;                            // tokens, since it has had something waiting
    std::vector<std::unique_ptr<Waiting>> jobs;  // as they came, that under way too
  };

  void loop();
  // These hold the mutex.
  std::vector<std::unique_ptr<Waiting>> take_unwanted();
  double least_had() const;
  Waiting* begin_next();
  std::unique_ptr<Waiting> end_piece(Waiting& job, bool more);

  const std::string what_;
  const FairLimits limits_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, Tenant> tenants_;  // guarded by `mutex_`, as what follows
  size_t requests_ = 0;                    // waiting, the one under way too
  int64_t tokens_ = 0;                     // the same
  uint64_t turn_ = 0;
  bool stop_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace millrace
