#include "kv/tiers/store_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/system.h"
#include "kv/tiers/block_io.h"
#include "tensor/aligned_buffer.h"

namespace millrace {
namespace {

Error cannot(const std::string& path, const char* what) {
  return Error::resource(fmt::format("KV store: {} cannot be {}: {}", path, what, std::strerror(errno)));
}

// A killed process holds its lock until the kernel has finished its writes in flight, which may be after its parent has
// reaped it. The lock keeps those writes from corrupting a file that was opened again.
bool lock(int fd, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EINTR && (errno != EWOULDBLOCK || std::chrono::steady_clock::now() >= end)) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

StoreFile::~StoreFile() {
  if (fd_ >= 0) ::close(fd_);  // also unlocks
}

StoreFile& StoreFile::operator=(StoreFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(direct_, other.direct_);
  std::swap(geometry_, other.geometry_);
  std::swap(identity_, other.identity_);
  std::swap(made_anew_, other.made_anew_);
  return *this;
}

bool StoreFile::sync() const { return sync_data(fd_); }

Result<StoreFile> StoreFile::open(const Options& options, const KvLayout& layout) {
  StoreFile file;
  // The header stores as much of the text as fits, for people to read.
  const std::string text = identity_text(layout, options.identity_text);
  file.identity_ = store_identity(text);
  MILLRACE_TRY(file.geometry_, StoreGeometry::create(layout, options.bytes, options.order));
  file.fd_ = ::open(options.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file.fd_ < 0) return cannot(options.path, "opened");
  struct stat info;
  if (::fstat(file.fd_, &info) != 0) return cannot(options.path, "examined");
  if (!S_ISREG(info.st_mode)) return Error::user(fmt::format("KV store: {} is not a regular file", options.path));
  if (!lock(file.fd_, options.lock_seconds))
    return Error::user(fmt::format("KV store: {} is in use by another engine; give each its own", options.path));

  MILLRACE_TRY(auto page, AlignedBuffer::allocate(kStorePage, "KV store header"));
  int64_t header_bytes = std::min<int64_t>(kStorePage, info.st_size);
  const std::span<uint8_t> header(page.data(), static_cast<size_t>(header_bytes));
  if (header_bytes > 0 && !move_bytes(file.fd_, {false, 0, page.data(), header_bytes, 0}))
    return cannot(options.path, "read");
  HeaderState state = decode_header(header, file.geometry_, file.identity_);
  if (state == HeaderState::foreign)
    return Error::user(fmt::format("KV store: {} is something else; choose another path or remove it", options.path));
  if (state != HeaderState::good || info.st_size != file.geometry_.file_bytes()) {
    MILLRACE_TRY_VOID(file.make_anew(options, text));
    file.made_anew_ = true;
  }
  // Bypass the page cache from here on, if the file system allows it: the blocks were evicted from memory on purpose.
  file.direct_ = options.direct && try_direct_io(file.fd_, page.data(), 0);
  return file;
}

// Writes the header first: an incomplete file is then recognized as ours by its wrong size.
Result<void> StoreFile::make_anew(const Options& options, const std::string& text) {
  std::vector<uint8_t> page(static_cast<size_t>(kStorePage));
  encode_header(geometry_, text, page);
  if (::ftruncate(fd_, 0) != 0 || !move_bytes(fd_, {true, 0, page.data(), kStorePage, 0}))
    return cannot(options.path, "written");
  const int64_t bytes = geometry_.file_bytes();
  if (!reserve_file_space(fd_, bytes, false)) {
    if (errno == ENOSPC || errno == EFBIG) {
      const int error = errno;
      (void)!::ftruncate(fd_, 0);
      return Error::resource(fmt::format("KV store: {} needs {} bytes: {}", options.path, bytes, std::strerror(error)));
    }
    if (::ftruncate(fd_, bytes) != 0) return cannot(options.path, "resized");  // sparse
  }
  if (::fsync(fd_) != 0) return cannot(options.path, "synced");
  return {};
}

}  // namespace millrace
