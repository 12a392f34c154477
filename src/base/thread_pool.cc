#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/start_thread.h"

namespace millrace {

// A job's indices are divided into one range per thread. Each thread processes its own range piece by piece and then
// helps with the rest of the other ranges:
//
//   tickets[0]   epoch | next piece | end, task   caller     written by the caller to start a job
//   tickets[1]   epoch | next piece | end, task   worker 1   the same; the worker spins on it
//   ...
//   reports[1]   epoch | pieces done              worker 1   written by the worker when no piece is left
//   ...                                           (each in its own cache line)
//
// Moving a cache line between cores takes 100 to 200 ns, as long as a piece of a short job. So a ticket contains
// everything a worker needs, and the context, which the task reads first, is prefetched while the claim is pending. A
// balanced job costs a few cache lines to each worker and one back; a worker gets the same indices in every job of a
// size, so that their data is in its cache; and a slow or late worker loses its range to the others. A piece is one
// index, or several if a ticket cannot count that many. A thread that may claim many pieces at once claims a quarter of
// what is left of the range: the last claims, which decide how far apart threads finish, are small.
//
// A job is over when all its pieces are done, not when all workers have seen it: a late worker (asleep, or preempted on
// a busy machine) does not delay the job and finds it gone. A piece is claimed by advancing a ticket with
// compare-and-swap, so a late worker cannot claim from a job that has been replaced, and a thread with a claim reads
// the right job, because the job cannot end before the piece is done.
struct ThreadPool::State {
  struct alignas(64) Ticket {
    std::atomic<uint64_t> value{0};
    std::atomic<Task> task{nullptr};
    std::atomic<const void*> context{nullptr};
    std::atomic<uint32_t> first{0};  // index of the range
    std::atomic<uint32_t> last{0};   // exclusive
    std::atomic<uint32_t> grain{1};  // indices per piece
    std::atomic<uint16_t> least{1};  // pieces per claim
    std::atomic<uint16_t> most{1};
    uint32_t claim(uint64_t seen) const;
    void run(uint32_t piece, uint32_t count, int worker) const;
  };
  struct alignas(64) Report {
    std::atomic<uint64_t> done{0};
    std::atomic<uint32_t> asleep{0};
  };

  explicit State(int threads) : tickets(static_cast<size_t>(threads)), reports(static_cast<size_t>(threads)) {}

  alignas(64) std::vector<Ticket> tickets;  // not written while jobs run, up to `stop`
  std::vector<Report> reports;
  std::vector<std::thread> workers;
  std::atomic<bool> stop{false};
  alignas(64) std::atomic<uint32_t> caller_waits{0};
  alignas(64) uint32_t epoch = 0;  // used by the caller only

  uint32_t open(int64_t n, int64_t threads, const Claims& claims, Task task, const void* context);
  uint32_t drain_range(int64_t range, uint32_t of_epoch, int worker);
  uint32_t drain(uint32_t of_epoch, int worker);
  void wait_for(uint32_t pieces, int64_t threads);
  bool done(uint32_t pieces, int64_t threads) const;
  uint32_t next_epoch(int worker, uint32_t seen);
  void work(int worker);  // main loop of a worker
};

namespace {

// How long to spin before sleeping: about the cost of waking a thread, so that neither spinning too long nor sleeping
// too early costs more than twice the optimum. Gaps inside a step are far shorter.
constexpr std::chrono::microseconds kSpin{50};

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // waits for the pipeline; many processors take "yield" as a no-op
#endif
}

// Spins until ready() or a timeout; returns whether it is ready.
template <typename Ready>
bool spin_until(const Ready& ready) {
  for (int i = 0; i < 64; ++i) {
    if (ready()) return true;
    pause_cpu();
  }
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}

constexpr int kContextLines = 4;  // prefetched from a context, even if it is shorter

constexpr int64_t kMaxPieces = 0xffff;  // per thread
constexpr uint64_t kOnePiece = 1 << 16;

constexpr uint64_t make_ticket(uint32_t epoch, int64_t next, int64_t end) {
  return uint64_t{epoch} << 32 | static_cast<uint64_t>(next << 16 | end);
}
constexpr uint64_t make_report(uint32_t epoch, uint32_t pieces) { return uint64_t{epoch} << 32 | pieces; }
constexpr uint32_t epoch_of(uint64_t packed) { return static_cast<uint32_t>(packed >> 32); }
constexpr uint32_t done_of(uint64_t report) { return static_cast<uint32_t>(report); }
constexpr uint32_t next_of(uint64_t ticket) { return static_cast<uint32_t>(ticket) >> 16; }
constexpr uint32_t end_of(uint64_t ticket) { return static_cast<uint32_t>(ticket) & 0xffff; }

}  // namespace

// How many of the pieces left in `seen` to claim at once.
uint32_t ThreadPool::State::Ticket::claim(uint64_t seen) const {
  const uint32_t left = end_of(seen) - next_of(seen);
  const uint32_t share = std::min<uint32_t>(left / 4, most.load(std::memory_order_relaxed));
  return std::min(left, std::max<uint32_t>(share, least.load(std::memory_order_relaxed)));
}

void ThreadPool::State::Ticket::run(uint32_t piece, uint32_t count, int worker) const {
  const int64_t per_piece = grain.load(std::memory_order_relaxed);
  const int64_t begin = first.load(std::memory_order_relaxed) + piece * per_piece;
  const int64_t end = std::min<int64_t>(begin + count * per_piece, last.load(std::memory_order_relaxed));
  task.load(std::memory_order_relaxed)(context.load(std::memory_order_relaxed), begin, end, worker);
}

// Starts a job; returns its number of pieces.
uint32_t ThreadPool::State::open(int64_t n, int64_t threads, const Claims& claims, Task task, const void* context) {
  const int64_t grain = (n - 1) / (kMaxPieces * threads) + 1;
  const int64_t all = grain == 1 ? n : (n - 1) / grain + 1;
  const int64_t pieces = all / threads;
  const int64_t longer = all % threads;
  const int64_t most = std::clamp<int64_t>(claims.most / grain, 1, kMaxPieces);
  const int64_t least = std::clamp<int64_t>(claims.least / grain, 1, most);
  ++epoch;
  int64_t first = 0;
  for (int64_t i = 0; i < threads; ++i) {  // the caller's first, so that threads that finish early can help with it
    Ticket& ticket = tickets[static_cast<size_t>(i)];
    const int64_t count = pieces + (i < longer);
    ticket.task.store(task, std::memory_order_relaxed);
    ticket.context.store(context, std::memory_order_relaxed);
    ticket.first.store(static_cast<uint32_t>(first), std::memory_order_relaxed);
    ticket.last.store(static_cast<uint32_t>(std::min(n, first + count * grain)), std::memory_order_relaxed);
    ticket.grain.store(static_cast<uint32_t>(grain), std::memory_order_relaxed);
    ticket.least.store(static_cast<uint16_t>(least), std::memory_order_relaxed);
    ticket.most.store(static_cast<uint16_t>(most), std::memory_order_relaxed);
    ticket.value.store(make_ticket(epoch, 0, count), std::memory_order_release);
    first += count * grain;
  }
  return static_cast<uint32_t>(all);
}

// Runs pieces of a range until none is left; returns how many.
uint32_t ThreadPool::State::drain_range(int64_t range, uint32_t of_epoch, int worker) {
  Ticket& ticket = tickets[static_cast<size_t>(range)];
  uint32_t pieces = 0;
  uint64_t seen = ticket.value.load(std::memory_order_acquire);
  while (epoch_of(seen) == of_epoch && next_of(seen) < end_of(seen)) {
    const auto* context = static_cast<const char*>(ticket.context.load(std::memory_order_relaxed));
    for (int line = 0; line < kContextLines; ++line) __builtin_prefetch(context + line * 64);
    const uint32_t count = ticket.claim(seen);  // safe: the job cannot end before its range is empty
    if (!ticket.value.compare_exchange_weak(seen, seen + count * kOnePiece, std::memory_order_acq_rel,
                                            std::memory_order_acquire))
      continue;
    ticket.run(next_of(seen), count, worker);
    pieces += count;
    seen = ticket.value.load(std::memory_order_acquire);
  }
  return pieces;
}

// Runs pieces of the job until none is left, its own range first; returns how many.
uint32_t ThreadPool::State::drain(uint32_t of_epoch, int worker) {
  const auto ranges = static_cast<int64_t>(tickets.size());
  uint32_t pieces = 0;
  for (int64_t i = 0; i < ranges; ++i) pieces += drain_range((worker + i) % ranges, of_epoch, worker);
  return pieces;
}

// Waits for a job that this worker has not seen; returns its epoch.
uint32_t ThreadPool::State::next_epoch(int worker, uint32_t seen) {
  const auto& ticket = tickets[static_cast<size_t>(worker)].value;
  auto& asleep = reports[static_cast<size_t>(worker)].asleep;
  auto changed = [&] { return epoch_of(ticket.load(std::memory_order_acquire)) != seen; };
  while (!spin_until(changed) && !stop.load(std::memory_order_relaxed)) {
    // The caller opens the ticket and then reads `asleep`, without a fence in between. If it misses a worker that is
    // just going to sleep, the job runs without that worker, and the next job wakes it.
    asleep.store(1, std::memory_order_seq_cst);
    if (!changed() && !stop.load(std::memory_order_seq_cst)) asleep.wait(1, std::memory_order_acquire);
    asleep.store(0, std::memory_order_relaxed);
  }
  return epoch_of(ticket.load(std::memory_order_acquire));
}

void ThreadPool::State::work(int worker) {
  Report& report = reports[static_cast<size_t>(worker)];
  uint32_t seen = 0;
  for (;;) {
    seen = next_epoch(worker, seen);
    if (stop.load(std::memory_order_acquire)) return;
    report.done.store(make_report(seen, drain(seen, worker)), std::memory_order_seq_cst);
    if (caller_waits.load(std::memory_order_seq_cst) != 0) {
      caller_waits.store(0, std::memory_order_seq_cst);
      caller_waits.notify_one();
    }
  }
}

bool ThreadPool::State::done(uint32_t pieces, int64_t threads) const {
  uint32_t sum = 0;
  for (int64_t i = 1; i < threads; ++i) {
    const uint64_t report = reports[static_cast<size_t>(i)].done.load(std::memory_order_seq_cst);
    if (epoch_of(report) == epoch) sum += done_of(report);
  }
  return sum == pieces;
}

// Waits until the workers together have done `pieces` pieces of the job.
void ThreadPool::State::wait_for(uint32_t pieces, int64_t threads) {
  while (!spin_until([&] { return done(pieces, threads); })) {
    caller_waits.store(1, std::memory_order_seq_cst);
    if (!done(pieces, threads)) caller_waits.wait(1, std::memory_order_acquire);
    caller_waits.store(0, std::memory_order_relaxed);
  }
}

ThreadPool::ThreadPool(int threads) : threads_(threads < 1 ? 1 : threads), state_(std::make_unique<State>(threads_)) {
  state_->workers.reserve(static_cast<size_t>(threads_ - 1));
  for (int worker = 1; worker < threads_; ++worker) {
    auto started = start_thread("computation", [state = state_.get(), worker] { state->work(worker); });
    if (!started.ok()) {  // the system refuses more threads; results do not depend on their number
      threads_ = worker;
      return;
    }
    state_->workers.push_back(std::move(*started));
  }
}

ThreadPool::~ThreadPool() {
  State& s = *state_;
  s.stop.store(true, std::memory_order_seq_cst);
  for (size_t i = 1; i <= s.workers.size(); ++i) {
    s.reports[i].asleep.store(0, std::memory_order_seq_cst);
    s.reports[i].asleep.notify_one();
  }
  for (auto& worker : s.workers) worker.join();
}

void ThreadPool::run(int64_t n, const Claims& claims, Task task, const void* context) {
  constexpr int64_t kMax = 1 << 30;  // indices of one job
  if (threads_ == 1 || n <= 1 || n > kMax) {
    for (int64_t begin = 0; begin < n; begin += claims.most) task(context, begin, std::min(n, begin + claims.most), 0);
    return;
  }
  State& s = *state_;
  const int64_t used = std::min<int64_t>(n, threads_);
  const uint32_t pieces = s.open(n, used, claims, task, context);
  for (int64_t i = 1; i < used; ++i) {
    auto& asleep = s.reports[static_cast<size_t>(i)].asleep;
    if (asleep.load(std::memory_order_relaxed) == 0) continue;
    // Not a release: it must come before notify_one() looks for waiters.
    asleep.store(0, std::memory_order_seq_cst);
    asleep.notify_one();
  }
  s.wait_for(pieces - s.drain(s.epoch, 0), used);
}

}  // namespace millrace
