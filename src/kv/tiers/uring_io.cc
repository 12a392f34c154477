// BlockIo on io_uring (Axboe, "Efficient IO with io_uring", 2019): requests and completions pass through two queues,
// with many pieces in flight from one thread and without a system call for each.
#include "kv/tiers/block_io.h"

#if defined(__linux__)
#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace millrace {
namespace {

class UringIo final : public BlockIo {
 public:
  static std::unique_ptr<UringIo> create(int fd, int64_t depth) {
    auto io = std::unique_ptr<UringIo>(new UringIo(fd));
    if (io_uring_queue_init(static_cast<unsigned>(depth), &io->ring_, 0) < 0) return nullptr;
    io->open_ = true;
    if (!io->knows_read_and_write()) return nullptr;
    io->pieces_.resize(static_cast<size_t>(depth));
    for (int64_t i = depth; i-- > 0;) io->free_.push_back(i);
    return io;
  }
  ~UringIo() override {
    IoDone done;
    while (open_ && under_way() > 0) wait({&done, 1});  // the kernel writes into the caller's buffers until then
    if (open_) io_uring_queue_exit(&ring_);
  }

  std::string_view name() const override { return "io_uring"; }
  int64_t depth() const override { return static_cast<int64_t>(pieces_.size()); }

  void start(const IoPiece& piece) override {
    const int64_t place = free_.back();
    free_.pop_back();
    pieces_[static_cast<size_t>(place)] = piece;
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) {  // cannot happen: the queue has an entry for every piece; but do not lose one
      finished_.push_back({place, move_bytes(fd_, piece)});
      return;
    }
    const auto bytes = static_cast<unsigned>(piece.bytes);
    const auto at = static_cast<uint64_t>(piece.at);
    if (piece.write)
      io_uring_prep_write(entry, fd_, piece.data, bytes, at);
    else
      io_uring_prep_read(entry, fd_, piece.data, bytes, at);
    io_uring_sqe_set_data64(entry, static_cast<uint64_t>(place));
  }

  int64_t wait(std::span<IoDone> done) override {
    int64_t filled = 0;
    const auto most = static_cast<int64_t>(done.size());
    auto give = [&](int64_t place, bool ok) {
      done[static_cast<size_t>(filled++)] = {pieces_[static_cast<size_t>(place)].tag, ok};
      free_.push_back(place);
    };
    while (!finished_.empty() && filled < most) {
      give(finished_.back().place, finished_.back().ok);
      finished_.pop_back();
    }
    while (io_uring_sq_ready(&ring_) > 0)
      if (io_uring_submit(&ring_) < 0 && under_way() > static_cast<int64_t>(io_uring_sq_ready(&ring_)))
        break;  // busy: reap completions first
    while (under_way() > 0 && filled < most) {
      io_uring_cqe* entry = nullptr;
      const int error = filled == 0 ? io_uring_wait_cqe(&ring_, &entry) : io_uring_peek_cqe(&ring_, &entry);
      if (error == -EINTR || (error == -EAGAIN && filled == 0)) continue;
      if (error < 0) break;
      const auto place = static_cast<int64_t>(io_uring_cqe_get_data64(entry));
      const int result = entry->res;
      io_uring_cqe_seen(&ring_, entry);
      const IoPiece& piece = pieces_[static_cast<size_t>(place)];
      give(place, result == piece.bytes || (may_go_on(result) && move_bytes(fd_, piece)));
    }
    return filled;
  }

 private:
  struct Finished {
    int64_t place;
    bool ok;
  };
  explicit UringIo(int fd) : fd_(fd) {}
  int64_t under_way() const { return static_cast<int64_t>(pieces_.size() - free_.size()); }
  static bool may_go_on(int result) {
    return result > 0 || result == -EINTR || result == -EAGAIN;
  }  // short, or would block

  bool knows_read_and_write() {
    io_uring_probe* probe = io_uring_get_probe_ring(&ring_);
    const bool knows =
        probe && io_uring_opcode_supported(probe, IORING_OP_READ) && io_uring_opcode_supported(probe, IORING_OP_WRITE);
    if (probe) io_uring_free_probe(probe);
    return knows;
  }

  int fd_;
  io_uring ring_{};
  bool open_ = false;
  std::vector<IoPiece> pieces_;
  std::vector<int64_t> free_;  // indices into pieces_
  std::vector<Finished> finished_;
};

}  // namespace

std::unique_ptr<BlockIo> make_uring_io(int fd, int64_t depth) {
  return UringIo::create(fd, std::max<int64_t>(1, depth));
}

}  // namespace millrace
#else
namespace millrace {
std::unique_ptr<BlockIo> make_uring_io(int, int64_t) { return nullptr; }
}  // namespace millrace
#endif
