// TextWorkers: threads that read the texts of requests: they render chat templates and tokenize. Templates,
// vocabularies and prompts are untrusted, so each may take long. The threads that serve /health and other requests
// without a model never do this work.
//
//   add() --> one queue per tenant, tenants take turns --> run() on a thread
//
// One tenant never uses all threads, so that another tenant's request starts at once. Thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"

namespace millrace {

// For metrics.
struct TextCounts {
  int64_t waiting = 0, running = 0;  // requests, now
  int64_t rejected = 0;              // since the start: the queue was full
};

class TextWorkers {
 public:
  struct Limits {
    size_t threads = 3;        // one tenant uses at most one fewer
    size_t waiting = 4096;     // requests waiting, of all tenants
    size_t of_tenant = 1024;   // waiting, of one tenant
    size_t bytes = 128 << 20;  // waiting, of all tenants; a single one may have more
  };
  struct Work {
    std::string tenant;
    size_t bytes = 0;                              // bytes of the waiting request
    std::shared_ptr<std::atomic<bool>> cancelled;  // set when the client leaves, or by stop(): run() looks at it, too
    std::function<void()> run;                     // on a thread; must not throw
    std::function<void()> drop;                    // called by stop() instead of run()
  };

  explicit TextWorkers(const Limits& limits) : limits_(limits) {}
  TextWorkers() : TextWorkers(Limits()) {}
  ~TextWorkers() { stop(); }

  // The first call starts the threads. Work whose client has left is neither run nor counted. Errors: resource (the
  // queue is full, the server is shutting down, no thread could be started).
  Result<void> add(Work work);
  // Drops the tenant's work whose flag is set, and with it the objects that it keeps alive, such as a connection.
  void leave(const std::string& tenant);
  TextCounts counts() const;
  // Cancels everything and waits for running work. Not to be called from a worker.
  void stop();

 private:
  struct Tenant {
    std::deque<Work> waiting;
    size_t running = 0;
  };

  Result<void> start_locked();
  void loop();
  std::deque<std::string>::iterator next_turn();
  void drop_cancelled(Tenant& tenant, std::vector<Work>& dropped);

  const Limits limits_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;                                      // this and the members below: guarded by `mutex_`
  std::map<std::string, Tenant> tenants_;                  // those with work that waits or runs
  std::deque<std::string> turns_;                          // tenants with work that waits, each once
  std::list<std::shared_ptr<std::atomic<bool>>> running_;  // their flags
  size_t waiting_ = 0, waiting_bytes_ = 0;
  int64_t rejected_ = 0;
  std::vector<std::thread> threads_;  // last: they use the others
};

}  // namespace millrace
