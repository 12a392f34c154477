// start_thread(): starts a thread, or returns an error if the system refuses it (a limit on processes or of a
// container). The constructor of std::thread would throw, and the uncaught exception would end the process.
#pragma once

#include <functional>
#include <thread>

#include "base/result.h"

namespace millrace {

// Starts a thread that runs `work`. `what`: a literal that names the thread in the error, such as "engine". If `work`
// throws, the thread ends with a message on standard error; `work` must catch its exceptions if another thread waits
// for its result. Errors: resource.
Result<std::thread> start_thread(const char* what, std::function<void()> work);

// For tests: during the lifetime of this object, start_thread() starts `allowed` more threads in the whole process and
// refuses all further ones.
class ThreadShortage {
 public:
  explicit ThreadShortage(int allowed);
  ~ThreadShortage();
  ThreadShortage(const ThreadShortage&) = delete;
  int refused() const;  // number of refused threads so far
};

}  // namespace millrace
