// Memory that this process can still allocate. Loads and caches that need more are rejected with an explanation, before
// the system's out-of-memory killer ends the process.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace millrace {

struct AvailableMemory {
  int64_t bytes = INT64_MAX;  // INT64_MAX: unknown
  std::string limit;          // source of the limit: "this machine", "the control group /user.slice"
};

// Returns the minimum of two amounts: the machine's available memory (/proc/meminfo, plus free swap), and the memory
// that the process's control groups (version 1 or 2) still allow. Cached file pages count as available, because the
// system can drop them. `root` is prepended to the paths under /proc and /sys.
AvailableMemory available_memory(const std::string& root = "");

// Returns the memory that this process could use on an idle machine: the machine's memory and swap, or the smallest
// limit of the process's control groups if that is lower.
AvailableMemory total_memory(const std::string& root = "");

// Return the resident memory of this process and its peak (VmHWM), including pages of mapped files. 0: unknown.
int64_t resident_bytes();
int64_t peak_resident_bytes();

// Fails if `bytes` exceed the available memory. Errors: resource; the message names `what`, the needed and available
// bytes, and `advice`.
Result<void> check_memory(int64_t bytes, const std::string& what, const std::string& advice,
                          const AvailableMemory& available = available_memory());

}  // namespace millrace
