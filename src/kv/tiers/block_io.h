// BlockIo: reads and writes of a file, several at once where the system can. One thread uses it; each thread of the
// prefix store has its own. io_uring where the kernel lets the process have it; else plain pread and pwrite, one after
// the other, behind the same calls.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace millrace {

struct IoPiece {
  bool write = false;
  int64_t at = 0;  // in the file
  uint8_t* data = nullptr;
  int64_t bytes = 0;  // with data and at, multiples of 4 KiB where the file is open for direct I/O
  uint64_t tag = 0;   // the caller's
};

struct IoDone {
  uint64_t tag = 0;
  bool ok = false;  // all bytes were moved
};

class BlockIo {
 public:
  virtual ~BlockIo() = default;
  virtual std::string_view name() const = 0;  // "io_uring", "pread"
  virtual int64_t depth() const = 0;          // pieces under way at most
  // Begins a piece; fewer than depth() are under way. Its bytes must stay until it is done.
  virtual void start(const IoPiece& piece) = 0;
  // Waits until a piece has ended, when one is under way; returns how many entries of `done` it filled.
  virtual int64_t wait(std::span<IoDone> done) = 0;
};

// `fd` must outlive it.
std::unique_ptr<BlockIo> make_uring_io(int fd,
                                       int64_t depth);  // null: this kernel or its seccomp filter does not let us
std::unique_ptr<BlockIo> make_plain_io(int fd);
std::unique_ptr<BlockIo> make_block_io(int fd, int64_t depth, bool uring);  // the first of these that works

// Moves all bytes, however many calls that takes. False: an error, or the file ends before.
bool move_bytes(int fd, const IoPiece& piece);

}  // namespace millrace
