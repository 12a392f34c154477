#include "compress/output/scratch_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/system.h"

namespace millrace {

Result<ScratchFile> ScratchFile::create(const std::string& path) {
  std::string name = path + ".scratch-XXXXXX";
  ScratchFile made;
  made.path_ = path + ".scratch";
  made.file_ = make_scratch_file(name.data());
  if (made.file_ < 0) return Error::resource(fmt::format("{}: cannot create: {}", made.path_, std::strerror(errno)));
  ::unlink(name.c_str());
  return made;
}

ScratchFile::~ScratchFile() {
  if (file_ >= 0) ::close(file_);
}

ScratchFile& ScratchFile::operator=(ScratchFile&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(path_, other.path_);
  return *this;
}

Result<void> ScratchFile::write(const void* data, int64_t bytes, int64_t offset) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::pwrite(file_, from, static_cast<size_t>(bytes), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0)
      return Error::resource(
          fmt::format("{}: cannot write {} bytes at {}: {}", path_, bytes, offset, std::strerror(errno)));
    from += done;
    bytes -= done;
    offset += done;
  }
  return {};
}

Result<void> ScratchFile::read(void* to, int64_t bytes, int64_t offset) const {
  auto* into = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t done = ::pread(file_, into, static_cast<size_t>(bytes), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0)
      return Error::resource(fmt::format("{}: cannot read {} bytes at {}: {}", path_, bytes, offset,
                                         done < 0 ? std::strerror(errno) : "the file is shorter"));
    into += done;
    bytes -= done;
    offset += done;
  }
  return {};
}

}  // namespace millrace
