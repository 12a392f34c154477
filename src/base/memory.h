// How much memory this process may still take: what a load or a cache is refused by, with numbers, before the system's
// out-of-memory killer ends the process without a word.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace millrace {

struct AvailableMemory {
  int64_t bytes = INT64_MAX;  // INT64_MAX: unknown
  std::string limit;          // who sets the limit: "this machine", "the control group /user.slice"
};

// The least of what /proc/meminfo calls available (with free swap), and what every control group (version 1 or 2) that
// the process is in leaves of its limit; pages of files count as available, they are dropped when need be. `root`
// stands before the paths of these files.
AvailableMemory available_memory(const std::string& root = "");

// What a process alone on the machine could have: its memory and swap, or the least limit of the control groups.
AvailableMemory total_memory(const std::string& root = "");

// Of this process, what is in memory now and what was at most (VmHWM), pages of mapped files included. 0: unknown.
int64_t resident_bytes();
int64_t peak_resident_bytes();

// Errors: resource, naming `what`, the bytes that it needs and those that there are, and saying `advice`.
Result<void> check_memory(int64_t bytes, const std::string& what, const std::string& advice,
                          const AvailableMemory& available = available_memory());

}  // namespace millrace
