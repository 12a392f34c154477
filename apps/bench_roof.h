// `millrace bench --roof`: measures the limits of the machine without a model.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "terminal/text_table.h"

namespace millrace {

// One row per number of threads; 0 means two rows, for one thread and for every core. Takes about two seconds per row.
// Prints a Markdown table or one JSON object. `room`: for the table. Errors: user (MILLRACE_ISA).
Result<int> run_bench_roof(const std::vector<int>& threads, bool json, const TableRoom& room);

// Reads the file from its disk with 1 to 32 reads in flight, for half a second each. Errors: user (the file is too
// small, or missing), storage.
Result<int> run_bench_disk(const std::string& path, bool json);

}  // namespace millrace
