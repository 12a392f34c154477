#include "engine/mask_worker.h"

#include <chrono>
#include <utility>

#include "base/start_thread.h"
#include "base/system.h"
#include "sampling/mask_units.h"

namespace millrace {
namespace {

constexpr int kMaskNice = 10;  // a core's tenth where steps use all of them

}  // namespace

MaskWorker::~MaskWorker() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// False: nothing is left to do, or there is no thread to do it, so that the step does.
bool MaskWorker::begin(LiveStream& stream, int64_t& units) {
  if (stream.own.sampler->prepare(0)) return false;
  if (stream.sequence.generated() == 0) {  // later tokens had their share in the step before
    const int64_t own = mask_units().own, all = own + units;
    units = 0;
    if (stream.own.sampler->prepare(own)) {
      units = all - own;
      return false;
    }
    if (all > own && stream.own.sampler->prepare(all - own)) return false;
  }
  if (!thread_.joinable()) {
    auto started = start_thread("masks", [this] { loop(); });
    if (!started.ok()) return false;
    thread_ = std::move(*started);
  }
  auto late = std::make_shared<LateMask>();
  late->work = stream.own.sampler->deferred();
  if (!late->work) return false;
  stream.late_mask = std::move(late);
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(stream.late_mask);
  }
  wake_.notify_one();
  return true;
}

const std::vector<LiveStream*>& MaskWorker::hold_back(const StreamLists& lists) {
  over_.clear();
  held_ = 0;
  {
    std::lock_guard lock(mutex_);
    seen_ = finished_;
  }
  int64_t units = mask_units().step;
  for (const StreamPtr& stream : lists.running()) {
    if (!stream->own.sampler || stream->beams || stream->ended) continue;
    Sequence& s = stream->sequence;
    const bool fresh = !stream->late_mask;
    if (fresh && !begin(*stream, units)) continue;
    if (fresh || !stream->late_mask->done) {
      s.held_back = true;
      ++held_;
      continue;
    }
    s.held_back = s.prefix.donor != 0;
    if (stream->late_mask->failed || stream->own.sampler->ended() || s.size() >= s.max_total)
      over_.push_back(stream.get());
    else
      stream->late_mask.reset();
  }
  return over_;
}

void MaskWorker::wait() {
  std::unique_lock lock(mutex_);
  done_.wait_for(lock, std::chrono::milliseconds(5), [this] { return finished_ > seen_; });
}

void MaskWorker::loop() {
  lower_thread_priority(kMaskNice, false);
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (stop_) return;
    std::shared_ptr<LateMask> late = queue_.front().lock();
    queue_.pop_front();
    if (!late) continue;
    lock.unlock();
    bool done = true;
    try {
      done = late->work->run(late->units);
    } catch (...) {  // no exception may leave a thread
      late->failed = true;
    }
    late->units *= 2;
    if (done) late->done = true;
    const std::weak_ptr<LateMask> rest = late;
    late.reset();  // which may free much: without the lock
    lock.lock();
    if (done) {
      ++finished_;
      done_.notify_all();
    } else {
      queue_.push_back(rest);
    }
  }
}

}  // namespace millrace
