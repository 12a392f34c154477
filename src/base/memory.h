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

// The least of what /proc/meminfo calls available (with free swap), and what every control group (version 2) that the
// process is in leaves of its limit; pages of files count as available, they are dropped when need be. `root` stands
// before the paths of these files.
AvailableMemory available_memory(const std::string& root = "");

// Errors: resource, naming `what`, the bytes that it needs and those that there are, and saying `advice`.
Result<void> check_memory(int64_t bytes, const std::string& what, const std::string& advice,
                          const AvailableMemory& available = available_memory());

}  // namespace millrace
