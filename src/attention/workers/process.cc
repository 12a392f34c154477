#include "attention/workers/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <vector>

namespace millrace {
namespace {

constexpr const char* kProgram = "millrace";

// Own group, so that an interrupt from the terminal reaches the engine alone; no signal is blocked or ignored.
void set_attributes(posix_spawnattr_t& attributes) {
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
}

// The variables that a worker's loader and sanitizers read. Everything else that it needs is in the engine's frames.
std::vector<std::string> worker_environment() {
  std::vector<std::string> variables;
  for (const char* name : {"PATH", "LD_LIBRARY_PATH", "TMPDIR", "ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS"})
    if (const char* value = std::getenv(name)) variables.push_back(fmt::format("{}={}", name, value));
  return variables;
}

// A duplicate above the child's files, so that setting one of them does not close another.
int above(int file) { return fcntl(file, F_DUPFD_CLOEXEC, 10); }

}  // namespace

Result<std::string> WorkerProcess::find_program(const std::string& named) {
  std::error_code error;
  if (!named.empty()) {
    if (std::filesystem::exists(named, error)) return named;
    return Error::user(fmt::format("attention workers: program: no file {}", named));
  }
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error && own.filename() == kProgram) return own.string();
  const std::filesystem::path beside = own.parent_path() / kProgram;
  if (!error && std::filesystem::exists(beside, error)) return beside.string();
  return Error::user("attention workers: the program millrace is not next to this one; name it with program=PATH");
}

Result<WorkerProcess> WorkerProcess::start(const std::string& program, int area, int& socket) {
  static std::mutex mutex;  // a child must not inherit the end of another child's socket
  const std::lock_guard lock(mutex);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
    return Error::resource(fmt::format("attention workers: no socket: {}", std::strerror(errno)));
  for (const int end : ends) fcntl(end, F_SETFD, FD_CLOEXEC);
  const int child_socket = above(ends[1]), child_area = area >= 0 ? above(area) : -1;
  close(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, child_socket, kSocket);
  if (child_area >= 0) posix_spawn_file_actions_adddup2(&actions, child_area, kArea);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  set_attributes(attributes);
  std::string socket_text = fmt::format("{}", kSocket), area_text = fmt::format("{}", child_area >= 0 ? kArea : -1);
  std::string name = program, command = "attention-worker", socket_flag = "--socket", area_flag = "--area";
  char* arguments[] = {name.data(),      command.data(), socket_flag.data(), socket_text.data(), area_flag.data(),
                       area_text.data(), nullptr};
  std::vector<std::string> variables = worker_environment();
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  WorkerProcess process;
  const int failed = posix_spawn(&process.pid_, program.c_str(), &actions, &attributes, arguments, environment.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(child_socket);
  if (child_area >= 0) close(child_area);
  if (failed == 0) {
    socket = ends[0];
    return process;
  }
  process.pid_ = -1;
  close(ends[0]);
  return Error::resource(fmt::format("attention workers: {} cannot be started: {}", program, std::strerror(failed)));
}

void WorkerProcess::stop() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

}  // namespace millrace
