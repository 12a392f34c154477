// `millrace bench --roof`: measures the limits of the machine without a model.
#pragma once

#include <vector>

#include "base/result.h"

namespace millrace {

// One row per number of threads; 0 means two rows, for one thread and for every core. Takes about two seconds per row.
// Prints a Markdown table or one JSON object. Errors: user (MILLRACE_ISA).
Result<int> run_bench_roof(const std::vector<int>& threads, bool json);

}  // namespace millrace
