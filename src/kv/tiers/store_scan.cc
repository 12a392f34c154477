#include "kv/tiers/store_scan.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/start_thread.h"
#include "kv/tiers/block_io.h"

namespace millrace {
namespace {

constexpr int64_t kScanBytes = int64_t{4} << 20;  // per read

}  // namespace

StoreScan::StoreScan(const StoreFile& file) : file_(file) {
  if (auto started = start_thread("scan of the KV store", [this] { loop(); }); started.ok())
    thread_ = std::move(*started);
}

StoreScan::~StoreScan() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

bool StoreScan::wait(double seconds) {
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return done_; });
}

StoreScan::Found StoreScan::take() {
  std::lock_guard lock(mutex_);
  const int64_t slots = found_.slots;
  Found out = std::exchange(found_, {});
  found_.slots = slots;
  found_.failed = out.failed;
  return out;
}

bool StoreScan::read(int64_t first, int64_t count) {
  const StoreGeometry& g = file_.geometry();
  return move_bytes(file_.fd(), {false, g.record_at(first), buffer_.data(), count * g.record_bytes, 0});
}

void StoreScan::loop() {
  const StoreGeometry& g = file_.geometry();
  const int64_t at_once = std::min(g.capacity, std::max<int64_t>(1, kScanBytes / g.record_bytes));
  auto buffer = AlignedBuffer::allocate(at_once * g.record_bytes, "KV store scan");
  bool good = buffer.ok();
  if (good) buffer_ = std::move(*buffer);
  for (int64_t first = 0; good && first < g.capacity; first += at_once) {
    const int64_t count = std::min(at_once, g.capacity - first);
    good = read(first, count);
    Found batch;
    for (int64_t i = 0; good && i < count; ++i) {
      StoreRecord record;
      const std::span one(buffer_.data() + i * g.record_bytes, static_cast<size_t>(g.record_bytes));
      const RecordState state = decode_record(g, file_.identity(), first + i, one, record);
      batch.bad += state == RecordState::bad;
      if (state == RecordState::good) batch.records.emplace_back(first + i, std::move(record));
    }
    std::lock_guard lock(mutex_);
    if (stop_) return;
    if (!good) break;
    found_.slots = first + count;
    found_.bad += batch.bad;
    std::ranges::move(batch.records, std::back_inserter(found_.records));
  }
  {
    std::lock_guard lock(mutex_);
    buffer_ = {};
    found_.failed = !good;
    done_ = true;
  }
  ended_.notify_all();
}

}  // namespace millrace
