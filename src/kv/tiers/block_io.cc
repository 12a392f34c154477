#include "kv/tiers/block_io.h"

#include <unistd.h>

#include <cerrno>

#include "base/system.h"

namespace millrace {
namespace {

constexpr int64_t kDirectPage = 4096;

class PlainIo final : public BlockIo {
 public:
  explicit PlainIo(int fd) : fd_(fd) {}
  std::string_view name() const override { return "pread"; }
  int64_t depth() const override { return 1; }
  void start(const IoPiece& piece) override {
    done_ = {piece.tag, move_bytes(fd_, piece)};
    pending_ = true;
  }
  int64_t wait(std::span<IoDone> done) override {
    if (!pending_ || done.empty()) return 0;
    done[0] = done_;
    pending_ = false;
    return 1;
  }

 private:
  int fd_;
  IoDone done_;
  bool pending_ = false;
};

}  // namespace

bool move_bytes(int fd, const IoPiece& piece) {
  for (int64_t moved = 0; moved < piece.bytes;) {
    const auto left = static_cast<size_t>(piece.bytes - moved);
    const ssize_t n = piece.write ? ::pwrite(fd, piece.data + moved, left, piece.at + moved)
                                  : ::pread(fd, piece.data + moved, left, piece.at + moved);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    moved += n;
  }
  return true;
}

bool try_direct_io(int fd, uint8_t* page, int64_t at) {
  if (!set_direct_io(fd, true)) return false;
  if (move_bytes(fd, {.at = at, .data = page, .bytes = kDirectPage})) return true;
  set_direct_io(fd, false);
  return false;
}

std::unique_ptr<BlockIo> make_plain_io(int fd) { return std::make_unique<PlainIo>(fd); }

std::unique_ptr<BlockIo> make_block_io(int fd, int64_t depth, bool uring) {
  auto io = uring ? make_uring_io(fd, depth) : nullptr;
  return io ? std::move(io) : make_plain_io(fd);
}

}  // namespace millrace
