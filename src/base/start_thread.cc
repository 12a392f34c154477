#include "base/start_thread.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <new>
#include <system_error>

namespace millrace {
namespace {

constexpr int kUnlimited = -1;
std::atomic<int> allowed_threads{kUnlimited};  // set by tests only
std::atomic<int> refused_threads{0};

// Returns true if a test refuses this thread.
bool refused_by_test() {
  int left = allowed_threads;
  while (left > 0 && !allowed_threads.compare_exchange_weak(left, left - 1)) continue;
  if (left != 0) return false;
  ++refused_threads;
  return true;
}

Error no_thread(const char* what, const char* why) {
  return Error::resource(
      fmt::format("thread: the system starts none for the {}: {}; raise its limit of threads", what, why));
}

// An exception that leaves a thread's function would end the process.
void run_guarded(const char* what, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    dprintf(STDERR_FILENO, "millrace: the thread of the %s has ended: %s\n", what, error.what());
  }
}

}  // namespace

Result<std::thread> start_thread(const char* what, std::function<void()> work) {
  if (refused_by_test()) return no_thread(what, "refused by a test");
  try {
    return std::thread([what, work = std::move(work)] { run_guarded(what, work); });
  } catch (const std::system_error& error) {
    return no_thread(what, error.what());
  } catch (const std::bad_alloc&) {
    return no_thread(what, "out of memory");
  }
}

ThreadShortage::ThreadShortage(int allowed) {
  refused_threads = 0;
  allowed_threads = allowed;
}
ThreadShortage::~ThreadShortage() { allowed_threads = kUnlimited; }
int ThreadShortage::refused() const { return refused_threads; }

}  // namespace millrace
