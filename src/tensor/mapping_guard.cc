#include "tensor/mapping_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

namespace millrace {
namespace {

// Read by the signal handler, which may only use atomics and system calls.
struct GuardSlot {
  std::atomic<uintptr_t> begin{0}, end{0};  // end 0: free
  std::atomic<bool> hit{false};
};
GuardSlot guard_slots[MappingGuard::kMax];
struct sigaction handler_before {};
std::mutex guard_mutex;

void hand_on(int signal, siginfo_t* info, void* context) {
  if ((handler_before.sa_flags & SA_SIGINFO) != 0 && handler_before.sa_sigaction) {
    handler_before.sa_sigaction(signal, info, context);
  } else if (handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN) {
    handler_before.sa_handler(signal);
  } else {
    ::sigaction(signal, &handler_before, nullptr);  // the access is repeated, and the default ends the process
  }
}

void on_lost_page(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (GuardSlot& slot : guard_slots) {
    const uintptr_t begin = slot.begin, end = slot.end;
    if (address < begin || address >= end) continue;
    const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    void* const from = reinterpret_cast<void*>(address / page * page);
    slot.hit = true;
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    if (::mmap(from, end - address / page * page, PROT_READ, kFlags, -1, 0) == from) return;
  }
  hand_on(signal, info, context);
}

void install_handler() {
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_sigaction = on_lost_page;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    return ::sigaction(SIGBUS, &action, &handler_before) == 0;
  }();
  (void)installed;
}

}  // namespace

MappingGuard::MappingGuard(std::span<const uint8_t> mapped) {
  if (mapped.empty()) return;
  const std::lock_guard lock(guard_mutex);
  install_handler();
  for (size_t i = 0; i < kMax && slot_ == kMax; ++i)
    if (guard_slots[i].end == 0) slot_ = i;
  if (slot_ == kMax) return;
  GuardSlot& slot = guard_slots[slot_];
  const auto begin = reinterpret_cast<uintptr_t>(mapped.data());
  slot.hit = false;
  slot.begin = begin;
  slot.end = begin + mapped.size();
}

MappingGuard::~MappingGuard() {
  if (slot_ == kMax) return;
  const std::lock_guard lock(guard_mutex);
  guard_slots[slot_].end = 0;
}

bool MappingGuard::hit() const { return slot_ < kMax && guard_slots[slot_].hit; }

}  // namespace millrace
