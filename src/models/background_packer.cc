#include "models/background_packer.h"

#include <fmt/format.h>

#include <chrono>

#include "base/start_thread.h"

namespace millrace {
namespace {

// For the first pass to begin. A request that came with the start is then not slowed down by the packer.
constexpr std::chrono::milliseconds kWaitForPass{250};
constexpr std::chrono::seconds kLongestPause{2};  // for the first pass to end
// For the pass after the first one. A program that wanted one token ends in that time, without a packer to stop.
constexpr std::chrono::milliseconds kWaitForSecond{20};

}  // namespace

BackgroundPacker::BackgroundPacker(Work work) : work_(std::move(work)) {}

Result<void> BackgroundPacker::start() {
  MILLRACE_TRY(thread_, start_thread("packing of weights", [this] { run(); }));
  return {};
}

BackgroundPacker::~BackgroundPacker() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void BackgroundPacker::begin_pass() {
  if (complete()) return;
  {
    std::lock_guard lock(mutex_);
    if (running_++ == 0 && ended_ == 0) first_pass_ = std::chrono::steady_clock::now();
    if (ended_ != 1) return;
  }
  changed_.notify_all();
}

void BackgroundPacker::end_pass() {
  if (complete()) return;
  {
    std::lock_guard lock(mutex_);
    --running_;
    ++ended_;
  }
  changed_.notify_all();
}

bool BackgroundPacker::goes_on() {
  std::unique_lock lock(mutex_);
  const auto may = [&] { return stop_ || hurry_ || ended_ > 0 || running_ == 0; };
  if (!may()) changed_.wait_until(lock, first_pass_ + kLongestPause, may);
  return !stop_;
}

void BackgroundPacker::fail(const Error& error) {
  std::lock_guard lock(mutex_);
  if (!error_) error_ = Error{error.kind, fmt::format("{}: {}", work_.files->path, error.message)};
}

void BackgroundPacker::run() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kWaitForPass, [&] { return stop_ || hurry_ || running_ > 0 || ended_ > 0; });
    if (ended_ > 0)
      changed_.wait_for(lock, kWaitForSecond, [&] { return stop_ || hurry_ || running_ > 0 || ended_ > 1; });
    if (stop_) return;
  }
  ThreadPool pool(work_.threads);
  const auto done = [](const WeightPacker::Planned& planned) {
    planned.weight->packing->complete.store(true, std::memory_order_release);
    planned.weight->packing->complete.notify_all();
  };
  // Damage is in failure() already.
  (void)work_.packer.pack_job(work_.packed, pool,
                              {.takes = packs_later,
                               .goes_on = [this] { return goes_on(); },
                               .done = done,
                               .failed = [this](const Error& error) { fail(error); }});
  std::unique_lock lock(mutex_);
  if (stop_) return;
  // What passes have read behind the packer's back.
  for (const auto& file : work_.files->files) file->release(0, file->bytes().size());
  complete_.store(true, std::memory_order_release);
  work_.stored.release();
  lock.unlock();
  changed_.notify_all();
}

Result<void> BackgroundPacker::finish() {
  std::unique_lock lock(mutex_);
  hurry_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return complete(); });
  return error_ ? Result<void>(*error_) : Result<void>();
}

Result<void> BackgroundPacker::failure() const {
  std::lock_guard lock(mutex_);
  if (error_) return *error_;
  if (complete()) return {};
  for (const auto& planned : work_.packer.planned()) {
    if (!packs_later(planned) || !planned.weight->packing->damaged) continue;
    if (auto checked = check_rows_finite(*planned.weight, 0, planned.weight->rows); !checked.ok())
      return Error{checked.error().kind, fmt::format("{}: {}", work_.files->path, checked.error().message)};
  }
  return {};
}

void BackgroundPacker::check_row(const Weight& weight, int64_t row) {
  if (auto checked = check_rows_finite(weight, row, row + 1); !checked.ok()) fail(checked.error());
}

}  // namespace millrace
