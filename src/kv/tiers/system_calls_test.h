// System calls that fail when a test requests it. system_calls_test.cc overrides them for the whole test program; by
// default they call the system's own.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>

namespace millrace {

struct SystemCalls {
  // Each is invoked before the call; an error number fails the call with it, 0 lets it proceed.
  std::function<int(off_t at)> read, write;
  std::function<int()> sync, allocate, truncate;
  std::atomic<int64_t> most_bytes{INT64_MAX};  // per read or write

  SystemCalls();   // only one may exist
  ~SystemCalls();  // restores the defaults
  SystemCalls(const SystemCalls&) = delete;
  SystemCalls& operator=(const SystemCalls&) = delete;
};

}  // namespace millrace
