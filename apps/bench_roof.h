// `millrace bench --roof`: the machine's ceilings by themselves.
#pragma once

#include <vector>

#include "base/result.h"

namespace millrace {

// One row for each number of threads; those of {0}: one, and every core. Takes about two seconds for each. Prints a
// Markdown table, or one JSON object. Errors: user (MILLRACE_ISA).
Result<int> run_bench_roof(const std::vector<int>& threads, bool json);

}  // namespace millrace
