#include "server/telemetry/adapter_activity.h"

#include <chrono>

namespace millrace {

AdapterActivity::Use::Use(AdapterActivity& activity, std::vector<std::string> adapters)
    : activity_(activity), adapters_(std::move(adapters)) {
  activity_.change(adapters_, 1, 0);
}

AdapterActivity::Use::~Use() { activity_.change(adapters_, running_ ? 0 : -1, running_ ? -1 : 0); }

void AdapterActivity::Use::run() {
  if (!running_) activity_.change(adapters_, -1, 1);
  running_ = true;
}

void AdapterActivity::change(const std::vector<std::string>& adapters, int waiting, int running) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::lock_guard lock(mutex_);
  changed_ = now.count();
  for (const std::string& name : adapters) {
    Counts& counts = counts_[name];
    counts.waiting += waiting;
    counts.running += running;
    if (counts.waiting == 0 && counts.running == 0) counts_.erase(name);
  }
}

AdapterActivity::Lists AdapterActivity::lists() const {
  Lists out;
  std::lock_guard lock(mutex_);
  out.changed = changed_;
  for (const auto& [name, counts] : counts_) {
    if (counts.waiting > 0) out.waiting += (out.waiting.empty() ? "" : ",") + name;
    if (counts.running > 0) out.running += (out.running.empty() ? "" : ",") + name;
  }
  return out;
}

}  // namespace millrace
