#include "server/generation/text_workers.h"

#include <algorithm>
#include <optional>

#include "base/start_thread.h"

namespace millrace {

// One thread is enough to work; the others are tried again with the next request.
Result<void> TextWorkers::start_locked() {
  while (threads_.size() < limits_.threads) {
    auto started = start_thread("texts of requests", [this] { loop(); });
    if (!started.ok()) return threads_.empty() ? Result<void>(started.error()) : Result<void>();
    threads_.push_back(std::move(*started));
  }
  return {};
}

Result<void> TextWorkers::add(Work work) {
  std::vector<Work> dropped;  // destroyed after the lock is released
  {
    std::lock_guard lock(mutex_);
    if (stop_) return Error::resource("queue: the server is shutting down");
    MILLRACE_TRY_VOID(start_locked());
    const auto full = [&] {
      const auto known = tenants_.find(work.tenant);
      return waiting_ >= limits_.waiting || (waiting_ > 0 && waiting_bytes_ + work.bytes > limits_.bytes) ||
             (known != tenants_.end() && known->second.waiting.size() >= limits_.of_tenant);
    };
    if (full())
      for (auto& [name, tenant] : tenants_) drop_cancelled(tenant, dropped);
    if (full()) {
      ++rejected_;
      return Error::resource("queue: too many requests are waiting to be read; try again later");
    }
    const size_t bytes = work.bytes;
    if (std::ranges::find(turns_, work.tenant) == turns_.end()) turns_.push_back(work.tenant);
    std::deque<Work>& queue = tenants_[work.tenant].waiting;
    queue.push_back(std::move(work));
    ++waiting_;
    waiting_bytes_ += bytes;
  }
  wake_.notify_one();
  return {};
}

void TextWorkers::leave(const std::string& tenant) {
  std::vector<Work> dropped;  // destroyed after the lock is released
  std::lock_guard lock(mutex_);
  if (const auto known = tenants_.find(tenant); known != tenants_.end()) drop_cancelled(known->second, dropped);
}

void TextWorkers::drop_cancelled(Tenant& tenant, std::vector<Work>& dropped) {
  for (Work& work : tenant.waiting) {
    if (!*work.cancelled) continue;
    --waiting_;
    waiting_bytes_ -= work.bytes;
    dropped.push_back(std::move(work));
  }
  std::erase_if(tenant.waiting, [](const Work& work) { return !work.cancelled; });
}

// The first tenant in line that may use a further thread.
std::deque<std::string>::iterator TextWorkers::next_turn() {
  return std::ranges::find_if(turns_, [&](const std::string& name) {
    return tenants_[name].running + 1 < std::max<size_t>(2, threads_.size());
  });
}

void TextWorkers::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    auto turn = turns_.end();
    wake_.wait(lock, [&] { return stop_ || (turn = next_turn()) != turns_.end(); });
    if (stop_) return;
    const std::string name = std::move(*turn);
    turns_.erase(turn);
    Tenant& tenant = tenants_[name];
    std::vector<Work> dropped;
    drop_cancelled(tenant, dropped);
    std::optional<Work> work;
    if (!tenant.waiting.empty()) {
      work = std::move(tenant.waiting.front());
      tenant.waiting.pop_front();
      --waiting_;
      waiting_bytes_ -= work->bytes;
    }
    if (!tenant.waiting.empty()) turns_.push_back(name);
    ++tenant.running;  // keeps it in tenants_ without the lock
    const auto flag = running_.insert(running_.end(), work ? work->cancelled : nullptr);
    lock.unlock();
    dropped.clear();
    if (work) work->run();
    work.reset();
    lock.lock();
    running_.erase(flag);
    if (--tenant.running == 0 && tenant.waiting.empty()) tenants_.erase(name);
    wake_.notify_one();  // for work of this tenant, which may have waited for its thread
  }
}

TextCounts TextWorkers::counts() const {
  std::lock_guard lock(mutex_);
  TextCounts counts{.running = std::ssize(running_), .rejected = rejected_};
  for (const auto& [name, tenant] : tenants_)
    counts.waiting += std::ranges::count_if(tenant.waiting, [](const Work& work) { return !*work.cancelled; });
  return counts;
}

void TextWorkers::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    for (const auto& flag : running_)
      if (flag) *flag = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
  std::map<std::string, Tenant> left;
  {
    std::lock_guard lock(mutex_);
    left.swap(tenants_);
    turns_.clear();
    waiting_ = waiting_bytes_ = 0;
  }
  for (auto& [name, tenant] : left)
    for (Work& work : tenant.waiting)
      if (work.drop && !*work.cancelled) work.drop();
}

}  // namespace millrace
