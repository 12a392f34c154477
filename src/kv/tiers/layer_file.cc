#include "kv/tiers/layer_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/start_thread.h"
#include "base/system.h"
#include "kv/tiers/block_io.h"
#include "kv/tiers/unnamed_file.h"

namespace millrace {
namespace {

constexpr int64_t kRecordPage = 4096;
constexpr int64_t kDepth = 16;                       // pieces in flight
constexpr int64_t kPieceBytes = int64_t{128} << 10;  // a piece is whole records, at least one

int64_t staged_record_bytes(const KvLayout& layout) {
  int64_t largest = 0;
  const std::vector<int8_t> turns = layer_turns(layout);
  for (size_t i = 0; i < turns.size(); ++i)
    if (turns[i] >= 0) largest = std::max(largest, layout.block_bytes(layout.layers[i]));
  return (largest + kRecordPage - 1) / kRecordPage * kRecordPage;
}

int64_t staged_layer_count(const KvLayout& layout) {
  return std::ranges::count_if(layer_turns(layout), [](int8_t turn) { return turn >= 0; });
}

int64_t piece_records(int64_t record) { return std::max<int64_t>(1, kPieceBytes / record); }

struct FileJob {
  enum class Kind { read, write, copy };
  Kind kind = Kind::read;
  int64_t layer = 0;
  std::vector<BlockId> blocks = {};
  uint64_t number = 0;
};

struct FilePiece {
  bool write = false;
  int64_t layer = 0;
  BlockId first = 0;
  int64_t count = 0;  // blocks
};

class ScratchFile final : public LayerFile {
 public:
  ScratchFile(KvPool& pool, int fd) : pool_(pool), fd_(fd), record_(staged_record_bytes(pool.layout())) {
    others_ = pool.ids() - pool.resident_blocks();
    int64_t next = 0;
    for (const int8_t turn : pool.staged().turns) ordinals_.push_back(turn < 0 ? -1 : next++);
    sums_.assign(static_cast<size_t>(next * others_), 0);
    writes_.assign(static_cast<size_t>(next), 0);
  }
  ~ScratchFile() override {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    io_.reset();
    ::close(fd_);
  }

  Result<void> start(const LayerFileOptions& options) {
    const int64_t bytes = static_cast<int64_t>(writes_.size()) * others_ * record_;
    if (!reserve_file_space(fd_, bytes, false)) {
      if (errno == ENOSPC || errno == EFBIG || ::ftruncate(fd_, bytes) != 0)
        return Error::resource(
            fmt::format("KV tier disk: {} has no room for {} bytes: {}", options.folder, bytes, std::strerror(errno)));
    }
    MILLRACE_TRY(buffers_, AlignedBuffer::allocate(kDepth * piece_records(record_) * record_, "KV tier disk"));
    direct_ = options.direct && try_direct_io(fd_, buffers_.data(), 0);
    io_ = make_block_io(fd_, kDepth, options.uring);
    pieces_.resize(static_cast<size_t>(io_->depth()));
    for (int64_t i = io_->depth(); i-- > 0;) free_.push_back(i);
    MILLRACE_TRY(thread_, start_thread("KV tier disk", [this] { run(); }));
    return {};
  }

  Transfer read(int64_t layer, std::span<const BlockId> blocks) override {
    return add({FileJob::Kind::read, layer, {blocks.begin(), blocks.end()}});
  }
  Transfer write(int64_t layer, std::span<const BlockId> blocks) override {
    return add({FileJob::Kind::write, layer, {blocks.begin(), blocks.end()}});
  }
  void wait(Transfer transfer) override {
    std::unique_lock lock(mutex_);
    done_changed_.wait(lock, [&] { return done_ >= transfer; });
  }
  bool is_done(Transfer transfer) const override {
    const std::lock_guard lock(mutex_);
    return done_ >= transfer;
  }
  void take_failed(std::vector<BlockId>& blocks) override {
    const std::lock_guard lock(mutex_);
    blocks.insert(blocks.end(), failed_.begin(), failed_.end());
    failed_.clear();
  }
  void copy(BlockId from, BlockId to) override { wait(add({FileJob::Kind::copy, 0, {from, to}})); }
  LayerFileStats stats() const override {
    const std::lock_guard lock(mutex_);
    LayerFileStats stats = stats_;
    stats.io = io_->name();
    stats.direct = direct_;
    return stats;
  }

 private:
  Transfer add(FileJob job) {
    const std::lock_guard lock(mutex_);
    job.number = ++added_;
    jobs_.push_back(std::move(job));
    changed_.notify_all();
    return added_;
  }

  void run() {
    for (;;) {
      FileJob job;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stops_ || !jobs_.empty(); });
        if (jobs_.empty()) break;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      if (job.kind == FileJob::Kind::copy)
        copy_layers(job.blocks[0], job.blocks[1]);
      else
        transfer(job.layer, job.kind == FileJob::Kind::write, job.blocks);
      const std::lock_guard lock(mutex_);
      done_ = job.number;
      done_changed_.notify_all();
    }
    reap_all();
  }

  // A read is done when all its records are in the pool; a write, when they are in the buffers.
  void transfer(int64_t layer, bool write, std::span<const BlockId> blocks) {
    const size_t ordinal = static_cast<size_t>(ordinals_[static_cast<size_t>(layer)]);
    while (!write && writes_[ordinal] > 0) reap();
    const auto most = static_cast<size_t>(piece_records(record_));
    for (size_t i = 0; i < blocks.size();) {
      size_t end = i + 1;
      while (end < blocks.size() && end - i < most && blocks[end] == blocks[end - 1] + 1) ++end;
      begin({write, layer, blocks[i], static_cast<int64_t>(end - i)});
      i = end;
    }
    while (!write && reads_ > 0) reap();
  }

  void begin(const FilePiece& piece) {
    while (free_.empty()) reap();
    const int64_t place = free_.back();
    free_.pop_back();
    pieces_[static_cast<size_t>(place)] = piece;
    uint8_t* const data = buffer(place);
    for (int64_t i = 0; piece.write && i < piece.count; ++i) {
      const auto block = static_cast<BlockId>(piece.first + i);
      move_record<true>(piece.layer, block, data + i * record_);
      sums_[index(piece.layer, block)] = sum_of(data + i * record_);
    }
    if (piece.write)
      ++writes_[static_cast<size_t>(ordinals_[static_cast<size_t>(piece.layer)])];
    else
      ++reads_;
    io_->start({.write = piece.write,
                .at = static_cast<int64_t>(index(piece.layer, piece.first)) * record_,
                .data = data,
                .bytes = piece.count * record_,
                .tag = static_cast<uint64_t>(place)});
  }

  // Waits for a piece, and moves the records of a read into the pool.
  void reap() {
    IoDone done;
    if (io_->wait({&done, 1}) == 0) return;
    const auto place = static_cast<int64_t>(done.tag);
    finish(pieces_[static_cast<size_t>(place)], buffer(place), done.ok);
    free_.push_back(place);
  }

  void reap_all() {
    while (static_cast<int64_t>(free_.size()) < io_->depth()) reap();
  }

  void finish(const FilePiece& piece, const uint8_t* data, bool ok) {
    for (int64_t i = 0; i < piece.count; ++i) {
      const auto block = static_cast<BlockId>(piece.first + i);
      uint64_t& sum = sums_[index(piece.layer, block)];
      if (piece.write) {
        if (!ok) sum = 0;
      } else if (ok && sum != 0 && sum == sum_of(data + i * record_)) {
        move_record<false>(piece.layer, block, const_cast<uint8_t*>(data) + i * record_);
      } else {
        fail(block);
      }
    }
    if (piece.write)
      --writes_[static_cast<size_t>(ordinals_[static_cast<size_t>(piece.layer)])];
    else
      --reads_;
    const std::lock_guard lock(mutex_);
    (piece.write ? stats_.written_bytes : stats_.read_bytes) += ok ? piece.count * record_ : 0;
  }

  void fail(BlockId block) {
    const std::lock_guard lock(mutex_);
    failed_.push_back(block);
    ++stats_.failed_blocks;
  }

  // Only this thread has pieces in flight: the memory of the turns is free, which the caller knows is lost.
  void copy_layers(BlockId from, BlockId to) {
    for (size_t i = 0; i < ordinals_.size(); ++i) {
      const auto layer = static_cast<int64_t>(i);
      const auto resident = [&](BlockId block) { return ordinals_[i] < 0 || block < pool_.resident_blocks(); };
      if (!resident(from)) transfer(layer, false, {&from, 1});
      for (int64_t kind = 0; kind < pool_.planes(layer); ++kind)
        for (int64_t head = 0; head < pool_.layout().layers[i].kv_heads; ++head)
          std::memcpy(pool_.plane(layer, to, kind, head), pool_.plane(layer, from, kind, head),
                      static_cast<size_t>(pool_.plane_tile_bytes(layer, kind)));
      if (!resident(to)) transfer(layer, true, {&to, 1});
    }
  }

  // From the pool to the record, or back.
  template <bool gather>
  void move_record(int64_t layer, BlockId block, uint8_t* record) {
    const int64_t heads = pool_.layout().layers[static_cast<size_t>(layer)].kv_heads;
    uint8_t* at = record;
    for (int64_t kind = 0; kind < pool_.planes(layer); ++kind) {
      const auto bytes = static_cast<size_t>(pool_.plane_tile_bytes(layer, kind));
      for (int64_t head = 0; head < heads; ++head, at += bytes) {
        uint8_t* const tile = pool_.plane(layer, block, kind, head);
        std::memcpy(gather ? at : tile, gather ? tile : at, bytes);
      }
    }
    if (gather) std::memset(at, 0, static_cast<size_t>(record + record_ - at));
  }

  // 0 is a record that was never written.
  uint64_t sum_of(const uint8_t* record) const { return XXH3_64bits(record, static_cast<size_t>(record_)) | 1; }
  size_t index(int64_t layer, BlockId block) const {
    return static_cast<size_t>(ordinals_[static_cast<size_t>(layer)] * others_ + block - pool_.resident_blocks());
  }
  uint8_t* buffer(int64_t place) { return buffers_.data() + place * piece_records(record_) * record_; }

  KvPool& pool_;
  const int fd_;
  const int64_t record_;           // bytes
  int64_t others_;                 // blocks that are not resident
  std::vector<int64_t> ordinals_;  // by layer of the pool: its place in the file; -1: none
  bool direct_ = false;

  // The file's thread only.
  std::unique_ptr<BlockIo> io_;
  AlignedBuffer buffers_;
  std::vector<uint64_t> sums_;
  std::vector<FilePiece> pieces_;
  std::vector<int64_t> free_;
  std::vector<int64_t> writes_;  // pieces in flight of each layer
  int64_t reads_ = 0;            // pieces in flight

  mutable std::mutex mutex_;
  std::condition_variable changed_, done_changed_;
  std::deque<FileJob> jobs_;
  std::vector<BlockId> failed_;
  LayerFileStats stats_;
  uint64_t added_ = 0, done_ = 0;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace

int64_t LayerFile::memory(const KvLayout& layout, int64_t blocks, int64_t resident) {
  const int64_t record = staged_record_bytes(layout), others = std::max<int64_t>(0, blocks - resident);
  return kDepth * piece_records(record) * record +
         staged_layer_count(layout) * others * static_cast<int64_t>(sizeof(uint64_t));
}

Result<std::unique_ptr<LayerFile>> LayerFile::create(KvPool& pool, const LayerFileOptions& options) {
  const int fd = open_unnamed_file(options.folder);
  if (fd < 0)
    return Error::user(
        fmt::format("KV tier disk: no file can be created in {}: {}; name a folder on a fast disk, "
                    "path=FOLDER",
                    options.folder, std::strerror(errno)));
  auto file = std::make_unique<ScratchFile>(pool, fd);
  MILLRACE_TRY_VOID(file->start(options));
  return std::unique_ptr<LayerFile>(std::move(file));
}

}  // namespace millrace
