#include "base/work_limits.h"

#include <utility>

namespace millrace {
namespace {

[[gnu::tls_model("initial-exec")]] thread_local WorkLimits limits_of_thread;  // also in the shared library

bool is_cancelled() { return limits_of_thread.cancelled && *limits_of_thread.cancelled; }
bool is_late() { return limits_of_thread.until && std::chrono::steady_clock::now() >= *limits_of_thread.until; }

}  // namespace

WorkScope::WorkScope(const WorkLimits& limits) : outer_(std::exchange(limits_of_thread, limits)) {}
WorkScope::~WorkScope() { limits_of_thread = outer_; }

const WorkLimits& work_limits() { return limits_of_thread; }

bool work_is_over() { return is_cancelled() || is_late(); }

Result<void> check_work() {
  if (is_cancelled()) return Error::cancelled("the request was cancelled");
  if (is_late()) return Error::resource("reading the text takes longer than this server allows; send a shorter one");
  return {};
}

}  // namespace millrace
