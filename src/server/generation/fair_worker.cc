#include "server/generation/fair_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/start_thread.h"
#include "server/access/key_account.h"
#include "server/http/http.h"

namespace millrace {

WorkShare WorkShare::of(const HttpRequest& request) {
  if (!request.account) return {"address " + request.client, 1, ""};
  const ApiKey key = request.account->key();
  return {"key " + key.name, key.weight, key.name};
}

Result<void> FairWorker::add(Job job) {
  std::vector<std::unique_ptr<Waiting>> dropped;  // destroyed after the lock is released
  auto waiting = std::make_unique<Waiting>();
  waiting->left = std::accumulate(job.pieces.begin(), job.pieces.end(), int64_t{0});
  waiting->job = std::move(job);
  const WorkShare& share = waiting->job.share;
  {
    std::lock_guard lock(mutex_);
    if (stop_) return Error::resource("queue: the server is shutting down");
    if (!thread_.joinable()) {
      MILLRACE_TRY(thread_, start_thread("requests without an answer", [this] { loop(); }));
    }
    dropped = take_unwanted();
    const auto known = tenants_.find(share.tenant);
    if (known != tenants_.end() && known->second.jobs.size() >= limits_.requests_of_one)
      return Error::resource(fmt::format("queue: {} of your {}; try again later", known->second.jobs.size(), what_));
    if (requests_ >= limits_.requests || (requests_ > 0 && tokens_ + waiting->left > limits_.tokens))
      return Error::resource(fmt::format("queue: too many {}; try again later", what_));
    const double least = least_service();
    Tenant& tenant = tenants_[share.tenant];
    if (tenant.jobs.empty()) {
      tenant.service = std::max(tenant.service, least);
      tenant.turn = ++turn_;
      tenant.done = 0;
    }
    waiting->mark = tenant.done + waiting->left;
    ++requests_;
    tokens_ += waiting->left;
    tenant.jobs.push_back(std::move(waiting));
  }
  wake_.notify_one();
  return {};
}

int64_t FairWorker::most_urgent() const {
  std::lock_guard lock(mutex_);
  std::optional<int64_t> most;
  for (const auto& [name, tenant] : tenants_)
    for (const auto& job : tenant.jobs)
      if (!job->job.unwanted || !*job->job.unwanted)
        most = std::max(most.value_or(job->job.share.priority), job->job.share.priority);
  return most.value_or(0);
}

// Among tenants with waiting requests; 0 if there are none.
double FairWorker::least_service() const {
  double least = -1;
  for (const auto& [name, tenant] : tenants_)
    if (!tenant.jobs.empty() && (least < 0 || tenant.service < least)) least = tenant.service;
  return std::max(least, 0.0);
}

std::vector<std::unique_ptr<FairWorker::Waiting>> FairWorker::take_unwanted() {
  std::vector<std::unique_ptr<Waiting>> out;
  for (auto& [name, tenant] : tenants_) {
    for (auto& job : tenant.jobs) {
      if (job->running || !job->job.unwanted || !*job->job.unwanted) continue;
      --requests_;
      tokens_ -= job->left;
      out.push_back(std::move(job));
    }
    std::erase(tenant.jobs, nullptr);
  }
  // Forget idle tenants that have had no more service than the others; if nothing waits at all, forget every tenant.
  const double least = least_service();
  std::erase_if(tenants_, [&](const auto& one) {
    return one.second.jobs.empty() && (requests_ == 0 || one.second.service <= least);
  });
  return out;
}

FairWorker::Waiting* FairWorker::begin_next() {
  Tenant* least = nullptr;
  for (auto& [name, tenant] : tenants_)
    if (!tenant.jobs.empty() &&
        (!least || std::pair(tenant.service, tenant.turn) < std::pair(least->service, least->turn)))
      least = &tenant;
  if (!least) return nullptr;
  Waiting& job = **std::ranges::min_element(
      least->jobs, {}, [](const auto& one) { return one->mark; });  // ties: first come, first served
  const int64_t cost = job.job.pieces[job.next];
  least->service += static_cast<double>(cost) / std::max(1e-6, job.job.share.weight);
  least->done += cost;
  least->turn = ++turn_;
  job.running = true;
  return &job;
}

// Returns the finished request, so that the caller can destroy it without the mutex.
std::unique_ptr<FairWorker::Waiting> FairWorker::end_piece(Waiting& job, bool more) {
  job.running = false;
  const int64_t cost = more ? job.job.pieces[job.next - 1] : job.left;
  tokens_ -= cost;
  job.left -= cost;
  if (more) return nullptr;
  --requests_;
  auto& jobs = tenants_[job.job.share.tenant].jobs;
  const auto found = std::ranges::find(jobs, &job, &std::unique_ptr<Waiting>::get);
  auto out = std::move(*found);
  jobs.erase(found);
  return out;
}

void FairWorker::loop() {
  for (;;) {
    std::vector<std::unique_ptr<Waiting>> dropped;
    std::unique_ptr<Waiting> ended;
    Waiting* job = nullptr;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || requests_ > 0; });
      if (stop_) return;
      dropped = take_unwanted();
      job = begin_next();
    }
    dropped.clear();
    if (!job) continue;
    const bool more = job->job.run(job->next) && ++job->next < job->job.pieces.size();
    std::lock_guard lock(mutex_);
    ended = end_piece(*job, more);
  }
}

void FairWorker::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
  std::map<std::string, Tenant> dropped;
  std::lock_guard lock(mutex_);
  dropped.swap(tenants_);
}

}  // namespace millrace
