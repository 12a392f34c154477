// FairWorker: a thread for work beside the engine (embeddings, rankings, a prompt's log-probabilities), which it takes from
// many requests a piece at a time, so that nobody waits for all of somebody else's.
//
//   between tenants   the next piece is of who has had least so far, by weight; who comes anew begins where the least of
//                     the others is
//   of one tenant     the request whose mark is lowest: what the tenant has had when it came, and what it asks for. A
//                     small one passes a large one, and each large one's turn comes: the marks of newcomers rise
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

// Whose work it is, and how much of the machine that may have beside others.
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
    std::shared_ptr<std::atomic<bool>> unwanted;  // nobody waits for it any more: it is dropped
    // On the thread, for each piece in order; false: there is nothing left to do.
    std::function<bool(size_t piece)> run;
  };

  // `what` is for messages: "texts wait to be embedded".
  FairWorker(std::string what, const FairLimits& limits = {}) : what_(std::move(what)), limits_(limits), thread_([this] { loop(); }) {}
  ~FairWorker() { stop(); }

  // Errors: resource (too much waits).
  Result<void> add(Job job);
  // Ends after the piece under way; what waits is dropped. Not from the thread itself.
  void stop();

 private:
  struct Waiting {
    Job job;
    size_t next = 0;    // piece
    int64_t left = 0;   // tokens
    int64_t mark = 0;
    bool under_way = false;
  };
  struct Tenant {
    double had = 0;     // tokens by weight, as far as they count against the others
    uint64_t turn = 0;  // when it had the last of them, or came
    int64_t done = 0;   // tokens, since it has had something waiting
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
  std::thread thread_;                     // last: it uses the others
};

}  // namespace millrace
