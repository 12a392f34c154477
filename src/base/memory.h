// How much memory this process can still allocate. Loads and caches that need more are rejected with an explanation,
// before the system's out-of-memory killer ends the process without one.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace millrace {

struct AvailableMemory {
  int64_t bytes = INT64_MAX;  // INT64_MAX: unknown
  std::string limit;          // source of the limit: "this machine", "the control group /user.slice"
};

// The minimum of what /proc/meminfo reports as available (plus free swap) and the remainder of the limit of every
// control group (version 1 or 2) of the process. File pages count as available, because the system can drop them.
// `root` is prepended to the paths of these files.
AvailableMemory available_memory(const std::string& root = "");

// Memory that this process could use on an idle machine: memory and swap, or the smallest limit of its control groups.
AvailableMemory total_memory(const std::string& root = "");

// Resident memory of this process and its peak (VmHWM), including pages of mapped files. 0: unknown.
int64_t resident_bytes();
int64_t peak_resident_bytes();

// Errors: resource, with `what`, the needed and available bytes, and `advice`.
Result<void> check_memory(int64_t bytes, const std::string& what, const std::string& advice,
                          const AvailableMemory& available = available_memory());

}  // namespace millrace
