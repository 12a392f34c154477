// Runs another program without a shell and collects its output.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace millrace {

struct ProcessOutput {
  int exit_code = 0;  // 128 + the signal's number if one ended it
  std::string output, errors;
};

// arguments[0] is the program's path. At most 64 MB of output are kept. While the program runs, also after it has
// closed its output, `wanted` is asked ten times a second; when it returns false, the program is ended, by force if it
// must be. Errors: user (cannot be started), resource (pipes), cancelled.
Result<ProcessOutput> run_process(const std::vector<std::string>& arguments, const std::function<bool()>& wanted);

// A program that runs at the same time as this one; its output is dropped. The destructor ends it, by force if
// necessary.
class BackgroundProcess {
 public:
  // Errors: as run_process().
  static Result<std::unique_ptr<BackgroundProcess>> start(const std::vector<std::string>& arguments);
  ~BackgroundProcess();
  BackgroundProcess(const BackgroundProcess&) = delete;

  bool running();

 private:
  explicit BackgroundProcess(pid_t pid) : pid_(pid) {}
  pid_t pid_;  // -1: it has ended
};

}  // namespace millrace
