#include "kv/tiers/disk_speed.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/storage_error.h"
#include "kv/tiers/block_io.h"
#include "tensor/aligned_buffer.h"

namespace millrace {
namespace {

class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

Result<ReadSpeed> measure_disk_speed(const std::string& path, int64_t piece_bytes, int64_t depth, double seconds) {
  using Clock = std::chrono::steady_clock;
  const OpenFile file(path);
  struct stat info {};
  if (file.fd() < 0 || ::fstat(file.fd(), &info) != 0)
    return Error::user(fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
  const int64_t pieces = static_cast<int64_t>(info.st_size) / piece_bytes;
  if (!S_ISREG(info.st_mode) || pieces < 1)
    return Error::user(
        fmt::format("{}: a disk is measured by a file of at least {} bytes, such as a model", path, piece_bytes));
  depth = std::min(depth, pieces);
  MILLRACE_TRY(AlignedBuffer buffers, AlignedBuffer::allocate(depth * piece_bytes, "reads"));
  ReadSpeed out;
  out.direct = try_direct_io(file.fd(), buffers.data(), 0);
  const auto io = make_block_io(file.fd(), depth, true);
  out.io = io->name();
  int64_t next = 0, flying = 0, bytes = 0;
  const auto start_one = [&](uint64_t buffer) {
    io->start({.at = next++ % pieces * piece_bytes,
               .data = buffers.data() + static_cast<int64_t>(buffer) * piece_bytes,
               .bytes = piece_bytes,
               .tag = buffer});
    ++flying;
  };
  const auto start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  for (int64_t i = 0; i < io->depth(); ++i) start_one(static_cast<uint64_t>(i));
  std::array<IoDone, 64> done;
  while (flying > 0) {
    const int64_t count = io->wait(done);
    for (int64_t i = 0; i < count; ++i) {
      const IoDone& one = done[static_cast<size_t>(i)];
      --flying;
      if (!one.ok) return storage_error(fmt::format("{}: cannot be read; see the system's log", path));
      bytes += piece_bytes;
      if (elapsed() < seconds) start_one(one.tag);
    }
  }
  out.gb_per_s = static_cast<double>(bytes) / elapsed() * 1e-9;
  return out;
}

}  // namespace millrace
