#include "base/system.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/exchange_names.h"
#include "base/move_pages.h"

#if defined(__linux__)
#include <malloc.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#elif defined(__APPLE__)
#include <pthread.h>
#include <sys/sysctl.h>
#endif

namespace millrace {

// ---- Memory ---------------------------------------------------------------------------------------------

void advise_pages(const void* address, size_t bytes, PageAdvice advice) {
  void* pages = const_cast<void*>(address);
#if defined(__linux__)
  const auto advice_of = [](PageAdvice wanted) {
    switch (wanted) {
      case PageAdvice::huge: return MADV_HUGEPAGE;
      case PageAdvice::small: return MADV_NOHUGEPAGE;
      case PageAdvice::collapse: return 25;  // MADV_COLLAPSE, since Linux 6.1; older systems refuse it
      case PageAdvice::drop: return MADV_DONTNEED;
      case PageAdvice::prefetch: return MADV_WILLNEED;
      case PageAdvice::map: return 22;  // MADV_POPULATE_READ, since Linux 5.14
    }
    return MADV_NORMAL;
  };
  if (::madvise(pages, bytes, advice_of(advice)) != 0 && advice == PageAdvice::map)
    ::madvise(pages, bytes, MADV_WILLNEED);
#else
  if (advice == PageAdvice::prefetch || advice == PageAdvice::map) ::posix_madvise(pages, bytes, POSIX_MADV_WILLNEED);
#if defined(MADV_FREE)
  if (advice == PageAdvice::drop) ::madvise(pages, bytes, MADV_FREE);
#endif
#endif
}

bool move_pages(void* from, size_t bytes, void* to) {
#if defined(__linux__) && defined(MREMAP_DONTUNMAP)
  return ::mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) == to;
#else
  (void)from, (void)bytes, (void)to;
  return false;
#endif
}

void keep_freed_memory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
#endif
}

// ---- Files ----------------------------------------------------------------------------------------------

bool exchange_names(const std::string& one, const std::string& other) {
#if defined(__linux__)
  return ::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0;
#elif defined(__APPLE__)
  return ::renamex_np(one.c_str(), other.c_str(), RENAME_SWAP) == 0;
#else
  errno = ENOSYS;
  return false;
#endif
}

int64_t modified_ns(const struct stat& info) {
#if defined(__APPLE__)
  const timespec& when = info.st_mtimespec;
#else
  const timespec& when = info.st_mtim;
#endif
  return int64_t{when.tv_sec} * 1'000'000'000 + when.tv_nsec;
}

bool reserve_file_space(int fd, int64_t bytes, bool by_writing) {
#if defined(__APPLE__)
  struct stat info {};
  if (::fstat(fd, &info) != 0) return false;
  if (info.st_size >= bytes) return true;
  (void)by_writing;
  fstore_t wanted = {F_ALLOCATEALL, F_PEOFPOSMODE, 0, bytes - info.st_size, 0};
  return ::fcntl(fd, F_PREALLOCATE, &wanted) != -1 && ::ftruncate(fd, bytes) == 0;
#else
#if defined(__linux__)
  if (!by_writing) return ::fallocate(fd, 0, 0, bytes) == 0;
#endif
  const int failed = ::posix_fallocate(fd, 0, bytes);  // writes them if it must
  errno = failed;
  return failed == 0;
#endif
}

bool set_direct_io(int fd, bool direct) {
#if defined(O_DIRECT)
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
#elif defined(F_NOCACHE)
  return ::fcntl(fd, F_NOCACHE, direct ? 1 : 0) != -1;
#else
  return !direct && fd >= 0;
#endif
}

void drop_cached_pages(int fd, int64_t begin, int64_t bytes) {
#if defined(__linux__)
  ::posix_fadvise(fd, begin, bytes, POSIX_FADV_DONTNEED);
#else
  (void)fd, (void)begin, (void)bytes;
#endif
}

bool sync_data(int fd) {
#if defined(__linux__)
  return ::fdatasync(fd) == 0;
#else
  return ::fsync(fd) == 0;
#endif
}

int make_scratch_file(char* name) {
#if defined(__linux__)
  return ::mkostemp(name, O_CLOEXEC);
#else
  const int fd = ::mkstemp(name);
  if (fd >= 0) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
#endif
}

int make_memory_file([[maybe_unused]] const char* name) {
#if defined(__linux__)
  return ::memfd_create(name, MFD_CLOEXEC);
#else
  errno = ENOSYS;
  return -1;
#endif
}

// ---- Sockets, pipes and signals ---------------------------------------------------------------------------

int open_socket(int family, int type, int protocol) {
#if defined(__linux__)
  return ::socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
#else
  const int fd = ::socket(family, type, protocol);
  if (fd < 0) return fd;
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
#if defined(SO_NOSIGPIPE)
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
  return fd;
#endif
}

ssize_t send_quietly(int socket, const void* data, size_t bytes, int flags) {
#if defined(MSG_NOSIGNAL)
  flags |= MSG_NOSIGNAL;
#endif
  return ::send(socket, data, bytes, flags);
}

bool open_pipe(std::array<int, 2>& ends) {
#if defined(__linux__)
  return ::pipe2(ends.data(), O_CLOEXEC) == 0;
#else
  if (::pipe(ends.data()) != 0) return false;
  for (const int end : ends) ::fcntl(end, F_SETFD, FD_CLOEXEC);
  return true;
#endif
}

int wait_signal(const sigset_t& set, timespec limit) {
#if defined(__linux__)
  return ::sigtimedwait(&set, nullptr, &limit);
#else
  constexpr timespec kPause = {0, 10'000'000};
  for (int64_t left = int64_t{limit.tv_sec} * 100 + limit.tv_nsec / 10'000'000; left >= 0; --left) {
    sigset_t pending;
    if (::sigpending(&pending) != 0) return -1;
    for (int signal = 1; signal < NSIG; ++signal)
      if (sigismember(&pending, signal) == 1 && sigismember(&set, signal) == 1) {
        int taken = -1;
        return ::sigwait(&set, &taken) == 0 ? taken : -1;
      }
    ::nanosleep(&kPause, nullptr);
  }
  return -1;
#endif
}

// ---- Threads and the process --------------------------------------------------------------------------------

int usable_processors() {
#if defined(__linux__)
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
#else
  return static_cast<int>(std::thread::hardware_concurrency());
#endif
}

void lower_thread_priority(int nice, bool idle) {
#if defined(__linux__)
  const auto thread = static_cast<id_t>(gettid());
  setpriority(PRIO_PROCESS, thread, std::min(getpriority(PRIO_PROCESS, thread) + nice, 19));
  const sched_param none{};
  if (idle) sched_setscheduler(static_cast<pid_t>(thread), SCHED_IDLE, &none);
#elif defined(__APPLE__)
  if (nice > 0) pthread_set_qos_class_self_np(idle ? QOS_CLASS_BACKGROUND : QOS_CLASS_UTILITY, 0);
#else
  (void)nice, (void)idle;
#endif
}

namespace {

#if defined(__linux__)
// Boot time of the machine in seconds since the epoch.
double boot_seconds() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("btime ")) return std::strtod(line.c_str() + 6, nullptr);
  return 0;
}

// The fields of /proc/self/stat after the name in parentheses; the first is the state, field 3 in proc(5).
std::vector<std::string> stat_fields() {
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t end = text.rfind(')');
  std::vector<std::string> out;
  if (end == std::string::npos) return out;
  std::istringstream words(text.substr(end + 1));
  for (std::string word; words >> word;) out.push_back(word);
  return out;
}
#endif

}  // namespace

bool read_process_figures(ProcessFigures& out) {
  namespace fs = std::filesystem;
  std::error_code failed;
  int64_t open = 0;
  for (fs::directory_iterator at("/dev/fd", failed), end; !failed && at != end; at.increment(failed)) ++open;
  if (!failed) out.open_files = open - 1;  // without the directory iterator's own
#if defined(__linux__)
  const auto fields = stat_fields();
  if (fields.size() <= 21) return false;
  const auto field = [&](size_t number) { return std::strtod(fields[number - 3].c_str(), nullptr); };
  out.start_seconds = boot_seconds() + field(22) / static_cast<double>(sysconf(_SC_CLK_TCK));
  out.virtual_bytes = static_cast<int64_t>(field(23));
  out.resident_bytes = static_cast<int64_t>(field(24)) * sysconf(_SC_PAGESIZE);
  return true;
#else
  return false;
#endif
}

std::string program_path() {
  std::error_code failed;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (!failed) return path.string();
  const std::vector<std::string> arguments = process_arguments();
  return arguments.empty() ? "" : arguments.front();
}

void end_with_parent() {
#if defined(__linux__)
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
}

std::vector<std::string> process_arguments() {
  std::vector<std::string> out;
#if defined(__linux__)
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  for (std::string argument; std::getline(file, argument, '\0');) out.push_back(argument);
#elif defined(__APPLE__)
  // The number of arguments, the program's path, zeros, then the arguments.
  std::array<int, 3> name = {CTL_KERN, KERN_PROCARGS2, getpid()};
  std::vector<char> text(size_t{1} << 20);
  size_t size = text.size();
  int count = 0;
  if (::sysctl(name.data(), name.size(), text.data(), &size, nullptr, 0) != 0 || size < sizeof count) return out;
  std::memcpy(&count, text.data(), sizeof count);
  const char* at = text.data() + sizeof count;
  const char* end = text.data() + size;
  at = std::find(at, end, '\0');
  at = std::find_if(at, end, [](char c) { return c != '\0'; });
  for (int i = 0; i < count && at < end; ++i) {
    const char* next = std::find(at, end, '\0');
    out.emplace_back(at, next);
    at = next + 1;
  }
#endif
  return out;
}

// ---- Processor ------------------------------------------------------------------------------------------

std::string ask_for_tiles() {
#if defined(__linux__) && defined(__x86_64__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  if (::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) return "";
  return fmt::format("the kernel refused permission to use AMX's tiles (arch_prctl: {})", std::strerror(errno));
#else
  return "this build asks for permission to use AMX's tiles only on Linux";
#endif
}

ArmFeatures arm_features() {
  ArmFeatures out;
#if defined(__aarch64__) && defined(__linux__)
  out.dotprod = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  out.i8mm = (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
  out.bf16 = (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
#elif defined(__aarch64__) && defined(__APPLE__)
  const auto has = [](const char* name) {
    int found = 0;
    size_t size = sizeof found;
    return ::sysctlbyname(name, &found, &size, nullptr, 0) == 0 && found != 0;
  };
  out = {has("hw.optional.arm.FEAT_DotProd"), has("hw.optional.arm.FEAT_I8MM"), has("hw.optional.arm.FEAT_BF16")};
#endif
  return out;
}

}  // namespace millrace
