#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>
#include <vector>

namespace millrace {

// A job's indices are cut into one range a thread. Each thread takes its own range piece by piece and then helps with
// what is left of the others':
//
//   job          what to do                            written by the caller
//   tickets[0]   epoch | next piece | end    caller    written by the caller to start a job; what a worker spins on
//   tickets[1]   epoch | next piece | end    worker 1
//   ...
//   reports[1]   epoch | pieces done         worker 1  written by the worker when it finds nothing left
//   ...                                                (each of these in a cache line of its own)
//
// So a balanced job costs few cache lines there and one back, a worker meets the same indices in every job of a size
// (and their data in its cache), and a slow or late worker loses its range to the others. A piece is one index, or
// several where a ticket cannot count so many.
//
// A job is over when all its pieces are done, not when all workers have seen it: a worker that is late (asleep, or
// preempted on a busy machine) holds nobody up, and finds its job gone. A piece is claimed by advancing a ticket with
// compare-and-swap, so a late worker cannot claim from a job that has been replaced, and whoever has claimed reads that
// job, because it cannot end before the piece is done.
struct ThreadPool::State {
  struct alignas(64) Job {
    std::atomic<Task> task{nullptr};
    std::atomic<const void*> context{nullptr};
    std::atomic<uint32_t> n{0};       // indices
    std::atomic<uint32_t> grain{1};   // indices of a piece
    std::atomic<uint32_t> pieces{0};  // of a range ...
    std::atomic<uint32_t> longer{0};  // ... and one more of so many ranges
  };
  struct alignas(64) Ticket {
    std::atomic<uint64_t> value{0};
  };
  struct alignas(64) Report {
    std::atomic<uint64_t> done{0};
    std::atomic<uint32_t> asleep{0};
  };

  explicit State(int threads) : tickets(static_cast<size_t>(threads)), reports(static_cast<size_t>(threads)) {}

  Job job;
  alignas(64) std::vector<Ticket> tickets;  // from here on what nobody writes while jobs run
  std::vector<Report> reports;
  std::vector<std::thread> workers;
  std::atomic<bool> stop{false};
  alignas(64) std::atomic<uint32_t> caller_waits{0};
  alignas(64) uint32_t epoch = 0;  // the caller's own

  int64_t open(int64_t n, int64_t threads, Task task, const void* context);
  void run_piece(int64_t range, int64_t piece, int worker) const;
  uint32_t drain_range(int64_t range, uint32_t of_epoch, int worker);
  uint32_t drain(uint32_t of_epoch, int worker);
  void wait_for(uint32_t pieces, int64_t threads);
  bool done(uint32_t pieces, int64_t threads) const;
  uint32_t next_epoch(int worker, uint32_t seen);
  void work(int worker);  // a worker's life
};

namespace {

// How long to spin before sleeping: about what waking a thread costs, so that neither a spin too many nor a sleep too
// early costs more than twice the best. Gaps inside a step are far shorter.
constexpr std::chrono::microseconds kSpin{50};

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Spins until ready() or until the time is up; says whether it is ready.
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

constexpr int64_t kMostPieces = 0xffff;  // of one thread
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

// Starts a job, its first piece claimed for the caller; returns its number of pieces.
int64_t ThreadPool::State::open(int64_t n, int64_t threads, Task task, const void* context) {
  const int64_t grain = (n - 1) / (kMostPieces * threads) + 1;
  const int64_t all = grain == 1 ? n : (n - 1) / grain + 1;
  const int64_t pieces = all / threads;
  const int64_t longer = all % threads;
  ++epoch;
  job.task.store(task, std::memory_order_relaxed);
  job.context.store(context, std::memory_order_relaxed);
  job.n.store(static_cast<uint32_t>(n), std::memory_order_relaxed);
  job.grain.store(static_cast<uint32_t>(grain), std::memory_order_relaxed);
  job.pieces.store(static_cast<uint32_t>(pieces), std::memory_order_relaxed);
  job.longer.store(static_cast<uint32_t>(longer), std::memory_order_relaxed);
  for (int64_t i = 0; i < threads; ++i) {  // the caller's first: whoever is done early finds it to help with
    const uint64_t ticket = make_ticket(epoch, i == 0, pieces + (i < longer));
    tickets[static_cast<size_t>(i)].value.store(ticket, std::memory_order_release);
  }
  return all;
}

void ThreadPool::State::run_piece(int64_t range, int64_t piece, int worker) const {
  const Task task = job.task.load(std::memory_order_relaxed);
  const void* context = job.context.load(std::memory_order_relaxed);
  const int64_t n = job.n.load(std::memory_order_relaxed);
  const int64_t grain = job.grain.load(std::memory_order_relaxed);
  const int64_t before = range * job.pieces.load(std::memory_order_relaxed) +
                         std::min<int64_t>(range, job.longer.load(std::memory_order_relaxed));
  const int64_t begin = (before + piece) * grain;
  for (int64_t i = begin; i < std::min(n, begin + grain); ++i) task(context, i, worker);
}

// Works until no piece of a range is left; returns how many it did.
uint32_t ThreadPool::State::drain_range(int64_t range, uint32_t of_epoch, int worker) {
  auto& ticket = tickets[static_cast<size_t>(range)].value;
  uint32_t did = 0;
  uint64_t seen = ticket.load(std::memory_order_acquire);
  while (epoch_of(seen) == of_epoch && next_of(seen) < end_of(seen)) {
    __builtin_prefetch(&job);  // the claim waits for the ticket's line, and this one comes meanwhile
    if (!ticket.compare_exchange_weak(seen, seen + kOnePiece, std::memory_order_acq_rel, std::memory_order_acquire))
      continue;
    run_piece(range, next_of(seen), worker);
    ++did;
    seen = ticket.load(std::memory_order_acquire);
  }
  return did;
}

// Works until no piece of the job is left, on its own range first; returns how many it did.
uint32_t ThreadPool::State::drain(uint32_t of_epoch, int worker) {
  const auto ranges = static_cast<int64_t>(tickets.size());
  uint32_t did = 0;
  for (int64_t i = 0; i < ranges; ++i) did += drain_range((worker + i) % ranges, of_epoch, worker);
  return did;
}

// The epoch of a job that this worker has not seen.
uint32_t ThreadPool::State::next_epoch(int worker, uint32_t seen) {
  const auto& ticket = tickets[static_cast<size_t>(worker)].value;
  auto& asleep = reports[static_cast<size_t>(worker)].asleep;
  auto changed = [&] { return epoch_of(ticket.load(std::memory_order_acquire)) != seen; };
  while (!spin_until(changed) && !stop.load(std::memory_order_relaxed)) {
    // The caller opens the ticket and then looks at `asleep`, without a fence between: should it miss a worker that is
    // just going to sleep, it does that one job alone and wakes it with the next.
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

// Until the workers have done so many pieces of the job between them.
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
    try {
      state_->workers.emplace_back([state = state_.get(), worker] { state->work(worker); });
    } catch (const std::system_error&) {  // the machine grants no more threads; fewer give the same results
      threads_ = worker;
      return;
    }
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

void ThreadPool::run(int64_t n, Task task, const void* context) {
  constexpr int64_t kMost = 1 << 30;  // indices of one job
  if (threads_ == 1 || n <= 1 || n > kMost) {
    for (int64_t i = 0; i < n; ++i) task(context, i, 0);
    return;
  }
  State& s = *state_;
  const int64_t used = std::min<int64_t>(n, threads_);
  const int64_t pieces = s.open(n, used, task, context);
  for (int64_t i = 1; i < used; ++i) {
    auto& asleep = s.reports[static_cast<size_t>(i)].asleep;
    if (asleep.load(std::memory_order_relaxed) == 0) continue;
    asleep.store(0, std::memory_order_release);
    asleep.notify_one();
  }
  s.run_piece(0, 0, 0);
  s.wait_for(static_cast<uint32_t>(pieces) - 1 - s.drain(s.epoch, 0), used);
}

}  // namespace millrace
