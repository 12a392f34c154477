#include "kv/tiers/store_reader.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>

#include "base/start_thread.h"

namespace millrace {
namespace {

constexpr int64_t kReadBytes = 128 << 10;            // parts of adjacent layers are read together up to this size
constexpr int64_t kBufferBytes = int64_t{16} << 20;  // of all reads in flight
constexpr int64_t kMaxReads = 64;

}  // namespace

StoreReader::StoreReader(const StoreFile& file, KvPool& pool, bool uring) : file_(file), pool_(pool) {
  const StoreGeometry& g = file.geometry();
  cuts_.push_back(0);
  for (int64_t layer = 1; layer <= g.layers(); ++layer) {
    const auto begin = static_cast<size_t>(cuts_.back());
    const bool full = g.chunk_slots > 1 || layer == g.layers() ||
                      g.part_at[static_cast<size_t>(layer) + 1] - g.part_at[begin] > kReadBytes;
    if (!full) continue;
    cuts_.push_back(layer);
    buffer_bytes_ = std::max(buffer_bytes_, g.chunk_slots * (g.part_at[static_cast<size_t>(layer)] - g.part_at[begin]));
  }
  const int64_t depth = buffer_bytes_ > 0 ? std::clamp<int64_t>(kBufferBytes / buffer_bytes_, 2, kMaxReads) : 1;
  io_ = make_block_io(file.fd(), depth, uring);
  if (auto buffers = AlignedBuffer::allocate(io_->depth() * buffer_bytes_, "KV store reads"); buffers.ok()) {
    buffers_ = std::move(*buffers);
    for (int64_t i = 0; i < io_->depth(); ++i) free_buffers_.push_back(i);
  }
  parts_.resize(static_cast<size_t>(io_->depth()));
  if (auto started = start_thread("reads of the KV store", [this] { loop(); }); started.ok())
    thread_ = std::move(*started);
}

int64_t StoreReader::most_bytes(const StoreGeometry& geometry) {
  int64_t part = geometry.chunk_slots > 1 ? kStorePage : kReadBytes;
  for (int64_t layer = 0; layer < geometry.layers(); ++layer) part = std::max(part, geometry.padded(layer));
  return std::max(kBufferBytes, 2 * geometry.chunk_slots * part);
}

StoreReader::~StoreReader() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    for (auto& load : queue_) load->given_up = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void StoreReader::push(std::shared_ptr<StoreLoad> load) {
  {
    std::lock_guard lock(mutex_);
    load->bad.assign(load->blocks.size(), 0);
    queue_.push_back(std::move(load));
  }
  wake_.notify_one();
}

void StoreReader::give_up(StoreLoad& load) {
  std::lock_guard lock(mutex_);
  load.given_up = true;
}

bool StoreReader::wait_layer(const StoreLoad& load, int64_t layer, double seconds) {
  std::unique_lock lock(mutex_);
  const std::chrono::duration<double> limit(std::clamp(seconds, 0.0, 1e6));
  return moved_.wait_for(lock, limit, [&] { return load.done || load.layers > layer; });
}

void StoreReader::wait_a_little() {
  std::unique_lock lock(mutex_);
  moved_.wait_for(lock, std::chrono::milliseconds(1));
}

void StoreReader::loop() {
  for (;;) {
    std::shared_ptr<StoreLoad> load;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (stop_) return;
      load = std::move(queue_.front());
      queue_.pop_front();
    }
    const auto begin = std::chrono::steady_clock::now();
    run(*load);
    {
      std::lock_guard lock(mutex_);
      load->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      load->layers = file_.geometry().layers();
      load->done = true;
    }
    moved_.notify_all();
  }
}

// Groups the load into one extent per request, in request order.
void StoreReader::order(const StoreLoad& load) {
  const StoreGeometry& g = file_.geometry();
  const auto slot = [&](size_t i) { return load.blocks[i].slot; };
  run_.clear();
  extents_.clear();
  for (size_t i = 0; i < load.blocks.size(); ++i) run_.push_back(i);
  if (g.chunk_slots > 1) std::ranges::sort(run_, {}, slot);
  for (size_t i = 0; i < run_.size(); ++i) {
    const float importance = load.blocks[run_[i]].importance;
    const bool next = i > 0 && slot(run_[i]) == slot(run_[i - 1]) + 1 && g.chunk_slots > 1 &&
                      g.same_chunk(slot(run_[i]), slot(run_[i - 1]));
    if (next)
      extents_.back() = {extents_.back().first, i + 1, std::max(importance, extents_.back().importance)};
    else
      extents_.push_back({i, i + 1, importance});
  }
  if (g.chunk_slots > 1) std::ranges::stable_sort(extents_, std::greater<>(), &Extent::importance);
}

void StoreReader::start(const StoreLoad& load, size_t extent, size_t group) {
  const StoreGeometry& g = file_.geometry();
  const int64_t first = cuts_[group], end = cuts_[group + 1], buffer = free_buffers_.back();
  const int64_t blocks = static_cast<int64_t>(extents_[extent].end - extents_[extent].first);
  free_buffers_.pop_back();
  parts_[static_cast<size_t>(buffer)] = {extent, first, end, buffer};
  const int64_t bytes = blocks * (g.part_at[static_cast<size_t>(end)] - g.part_at[static_cast<size_t>(first)]);
  io_->start({false, g.place(load.blocks[run_[extents_[extent].first]].slot, first),
              buffers_.data() + buffer * buffer_bytes_, bytes, static_cast<uint64_t>(buffer)});
}

void StoreReader::run(StoreLoad& load) {
  order(load);
  const size_t groups = cuts_.size() - 1, all = groups * extents_.size();
  left_.assign(groups, static_cast<int64_t>(extents_.size()));
  if (free_buffers_.empty()) {  // no memory for reading
    std::lock_guard lock(mutex_);
    std::ranges::fill(load.bad, char{1});
    return;
  }
  size_t next = 0;
  int64_t under_way = 0;
  auto given_up = [&] {
    std::lock_guard lock(mutex_);
    return load.given_up || stop_;
  };
  while (under_way > 0 || next < all) {
    if (next < all && given_up()) next = all;  // let the reads in flight complete
    for (; next < all && !free_buffers_.empty(); ++next, ++under_way)
      start(load, next % extents_.size(), next / extents_.size());
    IoDone done;
    if (io_->wait({&done, 1}) == 0) continue;  // nothing is in flight
    take_part(load, parts_[done.tag], done.ok);
    free_buffers_.push_back(static_cast<int64_t>(done.tag));
    --under_way;
  }
}

// Verifies outside the lock and copies under it: after give_up() nothing more is written. A damaged part is zeroed, so
// that a step computed over it sees finite numbers; its result is discarded.
void StoreReader::take_part(StoreLoad& load, const Part& part, bool read) {
  const StoreGeometry& g = file_.geometry();
  const Extent& extent = extents_[part.extent];
  uint8_t* bytes = buffers_.data() + part.buffer * buffer_bytes_;
  const int64_t begin = g.place(load.blocks[run_[extent.first]].slot, part.first_layer);
  auto part_of = [&](const StoreLoad::Block& block, int64_t layer) {
    return bytes + g.place(block.slot, layer) - begin;
  };
  damaged_.clear();
  for (size_t i = extent.first; i < extent.end; ++i) {
    const StoreLoad::Block& block = load.blocks[run_[i]];
    bool good = read;
    for (int64_t layer = part.first_layer; layer < part.end_layer && good; ++layer) {
      const std::span one(part_of(block, layer), static_cast<size_t>(g.part_bytes[static_cast<size_t>(layer)]));
      good = part_sum(block.key, layer, one) == block.sums[static_cast<size_t>(layer)];
    }
    if (good) continue;
    damaged_.push_back(run_[i]);
    for (int64_t layer = part.first_layer; layer < part.end_layer; ++layer)
      std::memset(part_of(block, layer), 0, static_cast<size_t>(g.padded(layer)));
  }
  bool moved = false;
  {
    std::lock_guard lock(mutex_);
    for (size_t block : damaged_) load.bad[block] = 1;
    if (load.given_up) return;
    for (size_t i = extent.first; i < extent.end; ++i) {
      const StoreLoad::Block& block = load.blocks[run_[i]];
      for (int64_t layer = part.first_layer; layer < part.end_layer; ++layer)
        copy_part_in(pool_, load.place(block), g, layer, part_of(block, layer));
    }
    const auto group = static_cast<size_t>(std::ranges::find(cuts_, part.first_layer) - cuts_.begin());
    if (--left_[group] == 0) {
      size_t whole = 0;
      while (whole < left_.size() && left_[whole] == 0) ++whole;
      moved = cuts_[whole] > load.layers;
      load.layers = cuts_[whole];
    }
  }
  if (moved) moved_.notify_all();
}

}  // namespace millrace
