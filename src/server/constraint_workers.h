// ConstraintWorkers: compiles what answers are held to, off the threads that serve others, on two of its own. What is
// quickly done is done in the order of arrival, its tenants in turn; what is not goes on to a thread that gets the
// processor when nobody else wants it. So a large schema delays neither streams nor small schemas.
//
//   add --> first tries, so many milliseconds each --> done
//                        | out of time: begun again
//                        v
//                  long ones, when the processor is idle --> done
//
// Who wants what is being compiled already waits for that; who leaves is taken from it, and with the last one it ends.
// Thread-safe.
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

// For metrics; all but the first two since the start.
struct ConstraintCounts {
  int64_t waiting = 0, compiling = 0;  // now
  int64_t known = 0;        // requests that found theirs compiled
  int64_t shared = 0;       // ... that waited for what another one had asked for
  int64_t compiled = 0;
  int64_t refused = 0;      // by the compiler
  int64_t cancelled = 0;    // nobody waited any more
  int64_t turned_away = 0;  // requests, because too many waited
  int64_t long_ones = 0;    // that took longer than a first try
  double seconds = 0;       // of processor time
};

class ConstraintWorkers {
 public:
  struct Limits {
    size_t waiting = 64;        // constraints that wait for their first try
    size_t long_waiting = 16;   // ... for more than that
    size_t of_tenant = 16;      // of one tenant that has a name, in all
    double first_try = 0.025;   // seconds of processor time
  };
  struct Work {
    std::string key;     // by which the same constraint for the same engine is known
    std::string tenant;  // "": nobody's
    std::function<Result<CompiledConstraint>(const CompileOrder&)> compile;
    std::function<void(const Result<CompiledConstraint>&)> done;  // on a worker's thread, which must not be kept
  };
  using Ticket = uint64_t;

  explicit ConstraintWorkers(const Limits& limits);
  ConstraintWorkers() : ConstraintWorkers(Limits()) {}
  ~ConstraintWorkers() { stop(); }

  Ticket new_ticket() { return ++last_ticket_; }
  // Errors: resource (too many wait).
  Result<void> add(Ticket ticket, Work work);
  // Nobody waits for this one any more; its done() may come all the same, if that is under way.
  void leave(Ticket ticket);
  void count_known() { ++known_; }

  ConstraintCounts counts() const;
  // Ends all of it; who waits is told so (cancelled). Not from a worker.
  void stop();

 private:
  struct Job {
    std::string key, tenant;
    std::function<Result<CompiledConstraint>(const CompileOrder&)> compile;
    std::vector<std::pair<Ticket, std::function<void(const Result<CompiledConstraint>&)>>> waiters;
    std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
  };
  using JobPtr = std::shared_ptr<Job>;

  // Tenants in turn, each one's in order.
  class Line {
   public:
    void push(JobPtr job);
    JobPtr pop();  // null: empty
    void remove(const JobPtr& job);
    bool empty() const { return size_ == 0; }
    size_t size() const { return size_; }

   private:
    std::deque<std::string> turns_;  // of tenants that have some
    std::map<std::string, std::deque<JobPtr>> of_;
    size_t size_ = 0;
  };

  void loop(bool long_ones);
  void run(const JobPtr& job, bool long_one);
  void finish(const JobPtr& job, const Result<CompiledConstraint>& compiled);

  const Limits limits_;
  std::atomic<Ticket> last_ticket_{0};
  std::atomic<int64_t> known_{0};
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::map<std::string, JobPtr> jobs_;     // by key: those that wait, and those under way that somebody wants
  std::map<Ticket, JobPtr> tickets_;
  Line first_, long_;
  ConstraintCounts counts_;
  std::vector<std::thread> threads_;       // last: they use the others
};

}  // namespace millrace
