#include "text/grammar/compile_budget.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {

Result<void> CompileBudget::take(int64_t bytes) {
  held_ += bytes;
  peak_ = std::max(peak_, held_);
  if (held_ > bounds_.bytes) return Error::unsupported(fmt::format("grammar: compiling it takes more than {} MiB; simplify it", bounds_.bytes >> 20));
  return check();
}

Result<void> CompileBudget::check() {
  if (checks_++ % kChecksAClock != 0) return {};
  if (cancelled_ && *cancelled_) return Error::cancelled("grammar: nobody waits for it any more");
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  if (seconds > bounds_.seconds) return Error::unsupported(fmt::format("grammar: compiling it takes longer than {} s; simplify it", bounds_.seconds));
  return {};
}

}  // namespace millrace
