#include "tensor/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/system.h"

namespace millrace {
namespace {
const auto kPageBytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Error::corrupt(fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return Error::corrupt(fmt::format("{}: not a regular file", path));
  }
  if (info.st_size == 0) {
    ::close(fd);
    return Error::corrupt(fmt::format("{}: file is empty", path));
  }
  void* data = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, fd, 0);
  int map_errno = errno;
  ::close(fd);
  if (data != MAP_FAILED) {
    // On file systems with large folios, data read from the disk is then in huge pages and mapped as such, in half the
    // time of mapping it page by page.
    advise_pages(data, static_cast<size_t>(info.st_size), PageAdvice::huge);
  }
  if (data == MAP_FAILED) return Error::resource(fmt::format("{}: cannot map: {}", path, std::strerror(map_errno)));
  auto file = std::shared_ptr<MappedFile>(new MappedFile());
  file->path_ = path;
  file->data_ = static_cast<const uint8_t*>(data);
  file->size_ = static_cast<size_t>(info.st_size);
  file->modified_ns_ = millrace::modified_ns(info);
  return std::shared_ptr<const MappedFile>(std::move(file));
}

MappedFile::~MappedFile() {
  if (data_) munmap(const_cast<uint8_t*>(data_), size_);
}

void MappedFile::populate(size_t begin, size_t bytes) const {
  if (begin >= size_) return;
  const size_t first = begin / kPageBytes * kPageBytes;
  advise_pages(data_ + first, std::min(size_, begin + bytes) - first, PageAdvice::map);
}

void MappedFile::prefetch(size_t begin, size_t bytes) const {
  if (begin >= size_) return;
  const size_t first = begin / kPageBytes * kPageBytes;
  advise_pages(data_ + first, std::min(size_, begin + bytes) - first, PageAdvice::prefetch);
}

void MappedFile::release(size_t begin, size_t bytes) const {
  if (begin >= size_) return;
  const size_t end = begin + std::min(bytes, size_ - begin);
  const size_t first = (begin + kPageBytes - 1) / kPageBytes * kPageBytes;
  const size_t last = end == size_ ? end : end / kPageBytes * kPageBytes;
  if (first < last) advise_pages(data_ + first, last - first, PageAdvice::drop);
}

}  // namespace millrace
