#include "text/grammar/compile_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

namespace millrace {
namespace {

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

Result<void> CompileBudget::take(int64_t bytes) {
  held_ += bytes;
  peak_ = std::max(peak_, held_);
  if (held_ > bounds_.bytes && !refused_)
    refused_ = Error::unsupported(fmt::format("grammar: compiling it takes more than {:.3g} MiB; simplify it",
                                              static_cast<double>(bounds_.bytes) / 1048576.0));
  return check();
}

Result<void> CompileBudget::check(int64_t work) {
  if (refused_) return *refused_;
  if ((steps_ += work) < kStepsAClock) return {};
  steps_ = 0;
  const double now = thread_seconds();
  if (began_ < 0) began_ = now;
  if (cancelled_ && *cancelled_)
    refused_ = Error::cancelled("grammar: cancelled, the request has ended");
  else if (now - began_ > bounds_.seconds)
    refused_ =
        Error::unsupported(fmt::format("grammar: compiling it takes longer than {} s; simplify it", bounds_.seconds));
  return refused_ ? Result<void>(*refused_) : Result<void>();
}

Result<void> BudgetShare::resize(int64_t bytes) {
  if (!budget_) return {};
  const int64_t more = bytes - bytes_;
  bytes_ = bytes;
  if (more > 0) return budget_->take(more);
  budget_->give_back(-more);
  return {};
}

}  // namespace millrace
