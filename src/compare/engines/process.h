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
  int exit_code = 0;  // exit status; 128 + the signal's number if a signal ended the program
  std::string output, errors;
};

// Runs a program and waits for its end. arguments[0] is the program's path. At most 64 MB of output are kept. `wanted`
// is called ten times a second while the program runs; if it returns false, the program is ended, by force if
// necessary. Errors: user (the program cannot be started), resource (pipes), cancelled.
Result<ProcessOutput> run_process(const std::vector<std::string>& arguments, const std::function<bool()>& wanted);

// A program that runs in the background. Its output is dropped. The destructor ends it, by force if necessary.
class BackgroundProcess {
 public:
  // Errors: as in run_process().
  static Result<std::unique_ptr<BackgroundProcess>> start(const std::vector<std::string>& arguments);
  ~BackgroundProcess();
  BackgroundProcess(const BackgroundProcess&) = delete;

  bool running();

 private:
  explicit BackgroundProcess(pid_t pid) : pid_(pid) {}
  pid_t pid_;  // -1: the program has ended
};

}  // namespace millrace
