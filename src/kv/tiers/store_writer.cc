#include "kv/tiers/store_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/start_thread.h"

namespace millrace {
namespace {

constexpr int64_t kWritesAtOnce = 16;

}  // namespace

StoreWriter::StoreWriter(const StoreFile& file, int64_t buffers, bool uring)
    : file_(file), most_buffers_(buffers), io_(make_block_io(file.fd(), kWritesAtOnce, uring)) {
  if (auto records = AlignedBuffer::allocate(buffers * file.geometry().record_bytes, "KV store records"); records.ok())
    records_ = std::move(*records);
  else
    most_buffers_ = 0;  // then nothing is ever written
  if (auto started = start_thread("writes of the KV store", [this] { loop(); }); started.ok())
    thread_ = std::move(*started);
}

StoreWriter::~StoreWriter() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

AlignedBuffer StoreWriter::take(bool wait) {
  std::unique_lock lock(mutex_);
  if (wait) room_.wait(lock, [&] { return !free_.empty() || buffers_made_ < most_buffers_ || most_buffers_ == 0; });
  if (!free_.empty()) {
    AlignedBuffer bytes = std::move(free_.back());
    free_.pop_back();
    return bytes;
  }
  if (buffers_made_ >= most_buffers_) return {};
  auto made = AlignedBuffer::allocate(file_.geometry().slot_bytes, "KV store writes");
  if (!made.ok()) return {};
  ++buffers_made_;
  return std::move(*made);
}

bool StoreWriter::has_room(int64_t buffers) {
  std::lock_guard lock(mutex_);
  return std::ssize(free_) + std::max<int64_t>(0, most_buffers_ - buffers_made_) >= buffers;
}

void StoreWriter::give_back(AlignedBuffer bytes) {
  std::lock_guard lock(mutex_);
  free_.push_back(std::move(bytes));
}

void StoreWriter::push(Job job) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void StoreWriter::collect(std::vector<Written>& out) {
  std::lock_guard lock(mutex_);
  out.clear();
  std::swap(out, written_);
}

void StoreWriter::loop() {
  std::vector<Job> jobs;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      jobs.clear();
      std::swap(jobs, queue_);
    }
    write(jobs);
    {
      std::lock_guard lock(mutex_);
      for (size_t i = 0; i < jobs.size(); ++i) {
        written_.push_back({jobs[i].slot, ok_[i] != 0, jobs[i].check, whole_[i] != 0, std::move(jobs[i].record.sums)});
        free_.push_back(std::move(jobs[i].bytes));
      }
    }
    room_.notify_all();
  }
}

void StoreWriter::run(std::span<const IoPiece> pieces) {
  IoDone done[kWritesAtOnce];
  int64_t under_way = 0;
  auto take_done = [&] {
    const int64_t n = io_->wait(done);
    for (int64_t i = 0; i < n; ++i)
      if (!done[i].ok) ok_[done[i].tag] = 0;
    under_way -= n;
  };
  for (const IoPiece& piece : pieces) {
    if (under_way == io_->depth()) take_done();
    io_->start(piece);
    ++under_way;
  }
  while (under_way > 0) take_done();
}

bool StoreWriter::sync_or_fail() {
  if (file_.sync()) return true;
  for (size_t i = 0; i < ok_.size(); ++i) ok_[i] = whole_[i];
  return false;
}

// Whether the bytes in the job's slot match the sums of its record.
bool StoreWriter::is_whole(const Job& job) {
  const StoreGeometry& g = file_.geometry();
  if (std::ssize(job.record.sums) != g.layers()) return false;
  if (read_.data() == nullptr) {
    auto made = AlignedBuffer::allocate(g.slot_bytes, "KV store checks");
    if (!made.ok()) return false;
    read_ = std::move(*made);
  }
  for (int64_t layer = 0; layer < g.layers(); ++layer) {
    const auto at = static_cast<size_t>(layer);
    uint8_t* part = read_.data() + g.part_at[at];
    if (!move_bytes(file_.fd(), {false, g.place(job.slot, layer), part, g.padded(layer), 0})) return false;
    if (part_sum(job.record.key, layer, {part, static_cast<size_t>(g.part_bytes[at])}) != job.record.sums[at])
      return false;
  }
  return true;
}

void StoreWriter::write_parts(std::vector<Job>& jobs) {
  const StoreGeometry& g = file_.geometry();
  pieces_.clear();
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (!ok_[i] || whole_[i]) continue;
    jobs[i].record.sums.resize(static_cast<size_t>(g.layers()));
    for (int64_t layer = 0; layer < g.layers(); ++layer) {
      const std::span part(jobs[i].bytes.data() + g.part_at[static_cast<size_t>(layer)],
                           static_cast<size_t>(g.part_bytes[static_cast<size_t>(layer)]));
      jobs[i].record.sums[static_cast<size_t>(layer)] = part_sum(jobs[i].record.key, layer, part);
    }
    if (g.chunk_slots == 1) {
      pieces_.push_back({true, g.place(jobs[i].slot, 0), jobs[i].bytes.data(), g.slot_bytes, i});
      continue;
    }
    for (int64_t layer = 0; layer < g.layers(); ++layer)
      pieces_.push_back({true, g.place(jobs[i].slot, layer),
                         jobs[i].bytes.data() + g.part_at[static_cast<size_t>(layer)], g.padded(layer), i});
  }
  run(pieces_);
}

void StoreWriter::write(std::vector<Job>& jobs) {
  const StoreGeometry& g = file_.geometry();
  ok_.assign(jobs.size(), 1);
  whole_.assign(jobs.size(), 0);
  for (size_t i = 0; i < jobs.size(); ++i) whole_[i] = jobs[i].check && is_whole(jobs[i]);
  if (std::ranges::find(whole_, char{0}) == whole_.end()) return;
  auto record_of = [&](size_t i) { return records_.data() + static_cast<int64_t>(i) * g.record_bytes; };
  std::memset(records_.data(), 0, jobs.size() * static_cast<size_t>(g.record_bytes));

  // The old block's record must never be found together with the new block's bytes.
  pieces_.clear();
  for (size_t i = 0; i < jobs.size(); ++i)
    if (jobs[i].dirty && !whole_[i])
      pieces_.push_back({true, g.record_at(jobs[i].slot), record_of(i), g.record_bytes, i});
  run(pieces_);
  if (!pieces_.empty() && !sync_or_fail()) return;

  write_parts(jobs);
  if (!sync_or_fail()) return;

  pieces_.clear();
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (!ok_[i] || whole_[i]) continue;
    encode_record(g, file_.identity(), jobs[i].slot, jobs[i].record,
                  {record_of(i), static_cast<size_t>(g.record_bytes)});
    pieces_.push_back({true, g.record_at(jobs[i].slot), record_of(i), g.record_bytes, i});
  }
  run(pieces_);
}

}  // namespace millrace
