// LocalNode: a server on this machine, started by `millrace cluster up` as a process of its own. If it ends, start()
// begins it again on the same port.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "cluster/node_call.h"

namespace millrace {

class LocalNode {
 public:
  // `arguments`: the program and its flags, without --port. The process's errors appear on this program's.
  explicit LocalNode(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {}
  ~LocalNode();  // end()
  LocalNode(const LocalNode&) = delete;

  // Starts the process. Call on the thread that lives as long as the process may: it ends with the thread. Errors: user
  // (the program cannot be started), resource.
  Result<void> start();
  // Waits until the process prints its address. Errors: internal (it ended, or said nothing in time).
  Result<void> wait_ready(double seconds);
  bool running();             // false: it has ended
  void end(int signal);       // sends the signal, if it runs
  void wait(double seconds);  // for its end; afterwards it is killed

  pid_t pid() const { return pid_; }
  const NodeAddress& address() const { return address_; }
  const std::string& said() const { return said_; }  // the line with its address
  // From now on, start() passes this flag, too.
  void add_argument(std::string argument) { arguments_.push_back(std::move(argument)); }

 private:
  void close_output();

  std::vector<std::string> arguments_;
  NodeAddress address_;
  std::string said_;
  pid_t pid_ = -1;  // -1: it does not run
  int output_ = -1;
};

}  // namespace millrace
