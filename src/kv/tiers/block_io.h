// BlockIo: file reads and writes, several in flight where the system supports it. Used by one thread; each thread of
// the prefix store has its own. Uses io_uring where the kernel allows it, otherwise pread and pwrite one at a time
// behind the same interface.
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
  int64_t bytes = 0;  // together with data and at: multiples of 4 KiB if the file is open for direct I/O
  uint64_t tag = 0;   // set by the caller
};

struct IoDone {
  uint64_t tag = 0;
  bool ok = false;  // all bytes were transferred
};

class BlockIo {
 public:
  virtual ~BlockIo() = default;
  virtual std::string_view name() const = 0;  // "io_uring", "pread"
  virtual int64_t depth() const = 0;          // maximum number of pieces in flight
  // Starts a piece; fewer than depth() must be in flight. Its buffer must stay valid until it completes.
  virtual void start(const IoPiece& piece) = 0;
  // Waits until a piece completes, if any is in flight; returns the number of entries of `done` that were filled. A
  // caller that works on what it read takes one piece at a time and starts the next one before: a disk often completes
  // all pieces in flight together, and would be idle meanwhile.
  virtual int64_t wait(std::span<IoDone> done) = 0;
};

// `fd` must outlive it.
std::unique_ptr<BlockIo> make_uring_io(int fd,
                                       int64_t depth);  // null: not allowed by the kernel or its seccomp filter
std::unique_ptr<BlockIo> make_plain_io(int fd);
std::unique_ptr<BlockIo> make_block_io(int fd, int64_t depth, bool uring);  // the first of these that works

// Transfers all bytes, with as many calls as needed. False: an error, or the file ends early.
bool move_bytes(int fd, const IoPiece& piece);

// Makes reads and writes of `fd` bypass the page cache, and reads 4 KiB at `at` into `page`, whose address is a
// multiple of 4 KiB. Returns false if the file system refuses the flag, or accepts it and refuses the read; then the
// page cache is used as before.
bool try_direct_io(int fd, uint8_t* page, int64_t at);

}  // namespace millrace
