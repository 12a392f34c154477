// start_thread(): starts a thread, or returns an error where the system refuses one (a limit of processes or of a
// container). std::thread's constructor throws instead, which ends the process on every thread that does not expect it.
#pragma once

#include <functional>
#include <thread>

#include "base/result.h"

namespace millrace {

// `what`: a literal that names the thread in the error: "engine". If `work` throws, the thread ends with a message on
// standard error; work that others wait for catches its own exceptions. Errors: resource.
Result<std::thread> start_thread(const char* what, std::function<void()> work);

// For tests: while it lives, start_thread() refuses all threads after the next `allowed`, in the whole process.
class ThreadShortage {
 public:
  explicit ThreadShortage(int allowed);
  ~ThreadShortage();
  ThreadShortage(const ThreadShortage&) = delete;
  int refused() const;  // threads so far
};

}  // namespace millrace
