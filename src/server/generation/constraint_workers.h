// ConstraintWorkers: compiles constraints on two separate threads, never on an I/O thread or the engine's. Every
// compilation has a short first try; tenants take turns. One that runs out of time starts again on the second thread,
// at idle priority. So a large schema delays neither streams nor small schemas.
//
//   add --> first try, a few milliseconds --> done
//                    | out of time
//                    v
//           long compilations, at idle priority --> done
//
// Identical requests share one compilation, which is cancelled when its last client leaves. Thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "millrace/constraint.h"

namespace millrace {

// For metrics. All but the first two count since the start.
struct ConstraintCounts {
  int64_t waiting = 0, compiling = 0;  // now
  int64_t known = 0;                   // requests whose constraint was in the cache
  int64_t shared = 0;                  // ... that joined a running compilation
  int64_t compiled = 0;
  int64_t refused = 0;    // by the compiler
  int64_t cancelled = 0;  // compilations whose clients had all left
  int64_t rejected = 0;   // requests rejected because the queue was full
  int64_t long_ones = 0;  // compilations that took longer than a first try
  double seconds = 0;     // seconds of processor time
};

class ConstraintWorkers {
 public:
  struct Limits {
    size_t waiting = 64;       // queued for a first try
    size_t long_waiting = 16;  // queued for the second thread
    size_t of_tenant = 16;     // queued of one named tenant, in all
    double first_try = 0.025;  // seconds of processor time
  };
  struct Work {
    std::string key;     // equal for equal constraints of one engine
    std::string tenant;  // "": none
    std::function<Result<CompiledConstraint>(const CompileOrder&)> compile;
    std::function<void(const Result<CompiledConstraint>&)> done;  // on a worker's thread; must not block
  };
  using Ticket = uint64_t;

  explicit ConstraintWorkers(const Limits& limits);
  ConstraintWorkers() : ConstraintWorkers(Limits()) {}
  ~ConstraintWorkers() { stop(); }

  Ticket new_ticket() { return ++last_ticket_; }
  // Errors: resource (the queue is full, no thread could be started).
  Result<void> add(Ticket ticket, Work work);
  // This client has left. Its done() may still be called if the compilation is just ending.
  void leave(Ticket ticket);
  void count_known() { ++known_; }

  ConstraintCounts counts() const;
  // Cancels everything; done() of each waiting request receives `cancelled`. Not to be called from a worker.
  void stop();

 private:
  struct Job {
    std::string key, tenant;
    std::function<Result<CompiledConstraint>(const CompileOrder&)> compile;
    std::vector<std::pair<Ticket, std::function<void(const Result<CompiledConstraint>&)>>> waiters;
    std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
  };
  using JobPtr = std::shared_ptr<Job>;

  // A queue in which tenants take turns; in order of arrival within a tenant.
  class Line {
   public:
    void push(JobPtr job);
    JobPtr pop();  // null: empty
    void remove(const JobPtr& job);
    bool empty() const { return size_ == 0; }
    size_t size() const { return size_; }

   private:
    std::deque<std::string> turns_;  // tenants that have jobs
    std::map<std::string, std::deque<JobPtr>> of_;
    size_t size_ = 0;
  };

  Result<void> start_locked();
  void loop(bool long_ones);
  void run(const JobPtr& job, bool long_one);
  void finish(const JobPtr& job, const Result<CompiledConstraint>& compiled);

  const Limits limits_;
  std::atomic<Ticket> last_ticket_{0};
  std::atomic<int64_t> known_{0};
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::map<std::string, JobPtr> jobs_;  // by key: queued, or running and not cancelled
  std::map<Ticket, JobPtr> tickets_;
  Line first_, long_;
  ConstraintCounts counts_;
  std::vector<std::thread> threads_;  // last: they use the others
};

}  // namespace millrace
