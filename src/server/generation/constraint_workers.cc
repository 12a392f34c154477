#include "server/generation/constraint_workers.h"

#include <time.h>

#include <algorithm>
#include <new>

#include "base/start_thread.h"
#include "base/system.h"

namespace millrace {
namespace {

constexpr int kNice = 10;  // for first tries: they are short, but the engine's steps are shorter

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

Error too_many() { return Error::resource("constraint: too many are waiting to be compiled; try again later"); }

}  // namespace

void ConstraintWorkers::Line::push(JobPtr job) {
  auto& jobs = of_[job->tenant];
  if (jobs.empty()) turns_.push_back(job->tenant);
  jobs.push_back(std::move(job));
  ++size_;
}

ConstraintWorkers::JobPtr ConstraintWorkers::Line::pop() {
  if (turns_.empty()) return nullptr;
  const std::string tenant = std::move(turns_.front());
  turns_.pop_front();
  auto found = of_.find(tenant);
  JobPtr job = std::move(found->second.front());
  found->second.pop_front();
  --size_;
  if (found->second.empty()) {
    of_.erase(found);
  } else {
    turns_.push_back(tenant);
  }
  return job;
}

void ConstraintWorkers::Line::remove(const JobPtr& job) {
  auto found = of_.find(job->tenant);
  if (found == of_.end() || std::erase(found->second, job) == 0) return;
  --size_;
  if (!found->second.empty()) return;
  of_.erase(found);
  std::erase(turns_, job->tenant);
}

ConstraintWorkers::ConstraintWorkers(const Limits& limits) : limits_(limits) {}

// The threads start with the first request, whose error it is if they cannot.
Result<void> ConstraintWorkers::start_locked() {
  while (threads_.size() < 2) {
    MILLRACE_TRY(std::thread started,
                 start_thread("constraints of answers", [this, long_ones = !threads_.empty()] { loop(long_ones); }));
    threads_.push_back(std::move(started));
  }
  return {};
}

Result<void> ConstraintWorkers::add(Ticket ticket, Work work) {
  {
    std::lock_guard lock(mutex_);
    if (stop_) return Error::resource("constraint: the server is shutting down");
    MILLRACE_TRY_VOID(start_locked());
    if (const auto found = jobs_.find(work.key); found != jobs_.end()) {
      found->second->waiters.emplace_back(ticket, std::move(work.done));
      tickets_[ticket] = found->second;
      ++counts_.shared;
      return {};
    }
    const auto of_tenant = static_cast<size_t>(
        std::ranges::count_if(jobs_, [&](const auto& entry) { return entry.second->tenant == work.tenant; }));
    if (first_.size() >= limits_.waiting || (!work.tenant.empty() && of_tenant >= limits_.of_tenant)) {
      ++counts_.rejected;
      return too_many();
    }
    auto job = std::make_shared<Job>();
    job->key = std::move(work.key);
    job->tenant = std::move(work.tenant);
    job->compile = std::move(work.compile);
    job->waiters.emplace_back(ticket, std::move(work.done));
    jobs_[job->key] = job;
    tickets_[ticket] = job;
    first_.push(std::move(job));
  }
  wake_.notify_all();
  return {};
}

void ConstraintWorkers::leave(Ticket ticket) {
  JobPtr job;
  decltype(job->waiters) left;  // destroyed after the lock is released
  std::lock_guard lock(mutex_);
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end()) return;
  job = std::move(found->second);
  tickets_.erase(found);
  const auto leaving = std::ranges::find(job->waiters, ticket, [](const auto& waiter) { return waiter.first; });
  left.push_back(std::move(*leaving));
  job->waiters.erase(leaving);
  if (!job->waiters.empty()) return;
  *job->cancelled = true;
  ++counts_.cancelled;
  jobs_.erase(job->key);  // a later request for it starts a new job
  first_.remove(job);
  long_.remove(job);
}

void ConstraintWorkers::loop(bool long_ones) {
  lower_thread_priority(kNice, long_ones);
  Line& line = long_ones ? long_ : first_;
  for (;;) {
    JobPtr job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || !line.empty(); });
      if (stop_) return;
      job = line.pop();
      ++counts_.compiling;
    }
    run(job, long_ones);
  }
}

void ConstraintWorkers::run(const JobPtr& job, bool long_one) {
  const double began = thread_seconds();
  auto compiled = [&]() -> Result<CompiledConstraint> {
    try {
      return job->compile({long_one ? 0 : limits_.first_try, job->cancelled});
    } catch (const std::bad_alloc&) {
      return Error::resource("constraint: out of memory while compiling it");
    } catch (const std::exception& error) {
      return Error::internal(std::string("constraint: compiling it failed: ") + error.what());
    }
  }();
  const double spent = thread_seconds() - began;
  bool again =
      !long_one && !compiled.ok() && compiled.error().kind == ErrorKind::unsupported && spent >= limits_.first_try;
  {
    std::lock_guard lock(mutex_);
    --counts_.compiling;
    counts_.seconds += spent;
    if (again && !*job->cancelled && !stop_) {
      ++counts_.long_ones;
      if (long_.size() < limits_.long_waiting) {
        long_.push(job);
      } else {
        counts_.rejected += static_cast<int64_t>(job->waiters.size());
        compiled = too_many();
        again = false;
      }
    }
  }
  if (again) return wake_.notify_all();
  finish(job, compiled);
}

void ConstraintWorkers::finish(const JobPtr& job, const Result<CompiledConstraint>& compiled) {
  decltype(job->waiters) waiters;
  {
    std::lock_guard lock(mutex_);
    if (*job->cancelled || stop_) return;
    if (compiled.ok()) ++counts_.compiled;
    if (!compiled.ok() && compiled.error().kind != ErrorKind::resource) ++counts_.refused;
    waiters.swap(job->waiters);
    for (const auto& [ticket, _] : waiters) tickets_.erase(ticket);
    jobs_.erase(job->key);
  }
  for (const auto& [_, done] : waiters) done(compiled);
}

ConstraintCounts ConstraintWorkers::counts() const {
  std::lock_guard lock(mutex_);
  ConstraintCounts counts = counts_;
  counts.waiting = static_cast<int64_t>(first_.size() + long_.size());
  counts.known = known_;
  return counts;
}

void ConstraintWorkers::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    for (auto& [_, job] : jobs_) *job->cancelled = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
  std::map<std::string, JobPtr> left;
  {
    std::lock_guard lock(mutex_);
    left.swap(jobs_);
    tickets_.clear();
    first_ = Line();
    long_ = Line();
  }
  for (const auto& [_, job] : left)
    for (const auto& [ticket, done] : job->waiters) done(Error::cancelled("constraint: the server is shutting down"));
}

}  // namespace millrace
