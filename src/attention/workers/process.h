// WorkerProcess: a child process that runs `millrace attention-worker`, with one end of a socket pair and, perhaps,
// shared memory as its files. It ends by itself when the engine's end of the socket is closed.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "base/result.h"

namespace millrace {

class WorkerProcess {
 public:
  // Files of the child.
  static constexpr int kSocket = 3, kArea = 4;

  // Starts `program`. `area`: a file that the child receives as kArea; -1: none. `socket`: out, the engine's end, which
  // the caller closes. Errors: resource.
  static Result<WorkerProcess> start(const std::string& program, int area, int& socket);
  // The program of own workers: `named`, or else this program if it is millrace, or else millrace in its folder.
  // Errors: user.
  static Result<std::string> find_program(const std::string& named);

  WorkerProcess() = default;
  ~WorkerProcess() { stop(); }
  WorkerProcess(WorkerProcess&& other) noexcept { *this = std::move(other); }
  WorkerProcess& operator=(WorkerProcess&& other) noexcept {
    stop();
    pid_ = std::exchange(other.pid_, -1);
    return *this;
  }

  pid_t pid() const { return pid_; }  // -1: no process
  // Kills the process and waits for its end.
  void stop();

 private:
  pid_t pid_ = -1;
};

}  // namespace millrace
