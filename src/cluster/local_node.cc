#include "cluster/local_node.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/system.h"

extern char** environ;

namespace millrace {
namespace {

constexpr size_t kMaxLineBytes = 4096;
constexpr auto kAskAgain = std::chrono::milliseconds(20);

// The address at the end of "millrace: NAMES at http://HOST:PORT".
Result<NodeAddress> address_in(const std::string& line) {
  const size_t at = line.rfind(" at http://");
  if (at == std::string::npos) return Error::internal(fmt::format("a node said '{}'", line.substr(0, 200)));
  return NodeAddress::parse(line.substr(at + 4));
}

}  // namespace

LocalNode::~LocalNode() {
  if (running()) {
    end(SIGTERM);
    wait(5);
  }
  close_output();
}

void LocalNode::close_output() {
  if (output_ >= 0) ::close(output_);
  output_ = -1;
}

Result<void> LocalNode::start() {
  std::array<int, 2> pipe;
  if (!open_pipe(pipe)) return Error::resource(fmt::format("a pipe: {}", std::strerror(errno)));
  close_output();
  output_ = pipe[0];
  std::vector<std::string> arguments = arguments_;
  arguments.insert(arguments.end(), {"--port", address_.port.empty() ? "0" : address_.port});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::string mark = "MILLRACE_END_WITH_PARENT=1";
  std::vector<char*> environment;
  for (char** one = environ; *one; ++one) environment.push_back(*one);
  environment.push_back(mark.data());
  environment.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe[1], 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);  // this program blocks the signals that it waits for
  // A group of its own: Ctrl-C reaches this program alone, which ends its nodes in order.
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  const int failed = ::posix_spawn(&pid_, argv[0], &actions, &attributes, argv.data(), environment.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  ::close(pipe[1]);
  if (!failed) return {};
  pid_ = -1;
  return Error::user(fmt::format("{}: cannot be started: {}", argv[0], std::strerror(failed)));
}

Result<void> LocalNode::wait_ready(double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::string line;
  while (line.find('\n') == std::string::npos && line.size() < kMaxLineBytes) {
    const std::chrono::duration<double> left = until - std::chrono::steady_clock::now();
    if (left.count() <= 0) return Error::internal(fmt::format("a node was not ready after {:.0f} s", seconds));
    pollfd ready{output_, POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(left.count() * 1000) + 1) <= 0) continue;
    std::array<char, 512> some;
    const ssize_t n = ::read(output_, some.data(), some.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Error::internal("a node ended before it was ready; its errors are above");
    line.append(some.data(), static_cast<size_t>(n));
  }
  said_ = line.substr(0, line.find('\n'));
  MILLRACE_TRY(address_, address_in(said_));
  return {};
}

bool LocalNode::running() {
  if (pid_ < 0) return false;
  int status = 0;
  pid_t ended = 0;
  while ((ended = ::waitpid(pid_, &status, WNOHANG)) < 0 && errno == EINTR) {
  }
  if (ended == 0) return true;
  pid_ = -1;
  return false;
}

void LocalNode::end(int signal) {
  if (pid_ >= 0) ::kill(pid_, signal);
}

void LocalNode::wait(double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (running() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(kAskAgain);
  if (!running()) return;
  end(SIGKILL);
  while (running()) std::this_thread::sleep_for(kAskAgain);
}

}  // namespace millrace
