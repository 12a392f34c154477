// WorkLimits: the limits at which a thread must stop working for a request: the client has left, or the time is over.
//
//   a server's worker   WorkScope scope({.cancelled = &left, .until = then});   before its work for the request
//   long loops          if (work_is_over()) return;                              every few thousand steps
//   their callers       MILLRACE_TRY_VOID(check_work());                         before the result is used
//
// The limits belong to the thread. They are not a parameter, so functions between the worker and a loop need not pass
// them on. Without a scope, as on the command line, nothing is limited.
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

// Applies `limits` to this thread during its lifetime. If scopes are nested, the innermost one applies.
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
