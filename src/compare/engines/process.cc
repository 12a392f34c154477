#include "compare/engines/process.h"

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
#include <optional>
#include <thread>
#include <utility>

#include "base/system.h"

extern char** environ;

namespace millrace {
namespace {

constexpr size_t kMaxOutput = size_t{64} << 20;
constexpr int kAskMs = 100;
constexpr int kExitAskMs = 10;     // once it prints no more
constexpr int kEndTries = 30;      // before it is killed
constexpr int kDrainReads = 1024;  // of what it printed before it ended

class Pipe {
 public:
  Pipe() { open_ = open_pipe(ends_); }
  ~Pipe() { close_end(0), close_end(1); }
  Pipe(const Pipe&) = delete;
  bool open() const { return open_; }
  int end(size_t which) const { return ends_[which]; }  // 0: to read from
  void close_end(size_t which) {
    if (open_ && ends_[which] >= 0) ::close(ends_[which]);
    ends_[which] = -1;
  }

 private:
  std::array<int, 2> ends_ = {-1, -1};
  bool open_ = false;
};

// Without ends of pipes (-1), what it prints is dropped.
Result<pid_t> start_process(const std::vector<std::string>& arguments, int out, int err) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  for (const auto& [from, to] : {std::pair(out, 1), std::pair(err, 2)}) {
    if (from >= 0)
      posix_spawn_file_actions_adddup2(&actions, from, to);
    else
      posix_spawn_file_actions_addopen(&actions, to, "/dev/null", O_WRONLY, 0);
  }
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int failed = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed) return Error::user(fmt::format("{}: cannot be started: {}", arguments[0], std::strerror(failed)));
  return pid;
}

// False at the end of what the program prints.
bool read_some(int fd, std::string& text) {
  std::array<char, 65536> chunk;
  const ssize_t n = ::read(fd, chunk.data(), chunk.size());
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  if (text.size() < kMaxOutput) text.append(chunk.data(), static_cast<size_t>(n));
  return n > 0;
}

// None while the program runs; with `block`, it waits.
std::optional<int> exit_code_of(pid_t pid, bool block = false) {
  int status = 0;
  pid_t ended = 0;
  while ((ended = ::waitpid(pid, &status, block ? 0 : WNOHANG)) < 0 && errno == EINTR) {
  }
  if (ended == 0) return std::nullopt;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Asks it to end, and kills it if it does not.
void end_process(pid_t pid) {
  ::kill(pid, SIGTERM);
  for (int i = 0; i < kEndTries; ++i) {
    if (exit_code_of(pid)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(kAskMs));
  }
  ::kill(pid, SIGKILL);
  exit_code_of(pid, true);
}

// The ends of pipes to read from, -1 once they are closed.
using OpenEnds = std::array<pollfd, 2>;

// False: nothing came within `ms`.
bool read_ready(OpenEnds& ends, int ms, ProcessOutput& result) {
  if (::poll(ends.data(), ends.size(), ms) <= 0) return false;
  if (ends[0].revents && !read_some(ends[0].fd, result.output)) ends[0].fd = -1;
  if (ends[1].revents && !read_some(ends[1].fd, result.errors)) ends[1].fd = -1;
  return true;
}

}  // namespace

Result<ProcessOutput> run_process(const std::vector<std::string>& arguments, const std::function<bool()>& wanted) {
  Pipe out, err;
  if (!out.open() || !err.open()) return Error::resource(fmt::format("a pipe: {}", std::strerror(errno)));
  MILLRACE_TRY(const pid_t pid, start_process(arguments, out.end(1), err.end(1)));
  out.close_end(1);
  err.close_end(1);
  ProcessOutput result;
  OpenEnds ends = {{{out.end(0), POLLIN, 0}, {err.end(0), POLLIN, 0}}};
  std::optional<int> code;
  while (!code) {
    if (!wanted()) {
      end_process(pid);
      return Error::cancelled("interrupted");
    }
    read_ready(ends, ends[0].fd >= 0 || ends[1].fd >= 0 ? kAskMs : kExitAskMs, result);
    code = exit_code_of(pid);
  }
  // Programs that it has started may still hold the ends.
  for (int i = 0; i < kDrainReads && (ends[0].fd >= 0 || ends[1].fd >= 0); ++i)
    if (!read_ready(ends, 0, result)) break;
  result.exit_code = *code;
  return result;
}

Result<std::unique_ptr<BackgroundProcess>> BackgroundProcess::start(const std::vector<std::string>& arguments) {
  MILLRACE_TRY(const pid_t pid, start_process(arguments, -1, -1));
  return std::unique_ptr<BackgroundProcess>(new BackgroundProcess(pid));
}

BackgroundProcess::~BackgroundProcess() {
  if (!running()) return;
  end_process(pid_);
}

bool BackgroundProcess::running() {
  if (pid_ >= 0 && exit_code_of(pid_)) pid_ = -1;
  return pid_ >= 0;
}

}  // namespace millrace
