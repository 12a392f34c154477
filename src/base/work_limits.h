// WorkLimits: when the work of a thread for one request has to end, because the client has left or its time is over.
//
//   a server's worker   WorkScope scope({.cancelled = &left, .until = then});   around what it does for the request
//   long loops          if (work_is_over()) return;                              every few thousand steps
//   their callers       MILLRACE_TRY_VOID(check_work());                         before the result is used
//
// The limits belong to the thread and not to a parameter, so that no call between the worker and a loop can forget to
// pass them. Without a scope, as on the command line, nothing is limited.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>

#include "base/result.h"

namespace millrace {

struct WorkLimits {
  const std::atomic<bool>* cancelled = nullptr;  // set by another thread; null: never
  std::optional<std::chrono::steady_clock::time_point> until;
};

// While it lives, `limits` apply to this thread. Scopes nest: the innermost applies.
class WorkScope {
 public:
  explicit WorkScope(const WorkLimits& limits);
  ~WorkScope();
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;

 private:
  WorkLimits outer_;
};

const WorkLimits& work_limits();  // limits of the calling thread
bool work_is_over();
// Errors: cancelled (the client has left), resource (the time is over).
Result<void> check_work();

}  // namespace millrace
