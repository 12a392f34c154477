// System calls that fail when a test says so. system_calls_test.cc defines them for the whole test program; without a
// test's word they are the system's own.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>

namespace millrace {

struct SystemCalls {
  // Each is asked before the call; an error number fails the call with it, 0 lets it go on.
  std::function<int(off_t at)> read, write;
  std::function<int()> sync, allocate, truncate;
  std::atomic<int64_t> most_bytes{INT64_MAX};  // of one read or write

  SystemCalls();   // one at a time
  ~SystemCalls();  // from here on all is as it was
  SystemCalls(const SystemCalls&) = delete;
  SystemCalls& operator=(const SystemCalls&) = delete;
};

}  // namespace millrace
