#include "base/pending_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/publish.h"

namespace millrace {
namespace {

constexpr int64_t kWriteBytes = int64_t{8} << 20;
constexpr int kMaxNames = 1000;  // that killed processes, whose ids come again, may have left behind

}  // namespace

PendingFile::PendingFile(std::string path) : path_(std::move(path)) {
  for (int i = 0; i < kMaxNames && fd_ < 0; ++i) {
    pending_ = path_ + "." + std::to_string(::getpid()) + "-" + std::to_string(i) + ".partial";
    fd_ = ::open(pending_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST) return;
  }
}

PendingFile::~PendingFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(pending_.c_str());
}

bool PendingFile::write(const void* data, int64_t bytes, int64_t at) {
  for (int64_t done = 0; fd_ >= 0 && done < bytes;) {
    const ssize_t wrote = ::pwrite(fd_, static_cast<const uint8_t*>(data) + done,
                                   static_cast<size_t>(std::min(kWriteBytes, bytes - done)), at + done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    done += wrote;
  }
  return fd_ >= 0;
}

bool PendingFile::commit() {
  if (fd_ < 0) return false;
  if (const auto failed = publish(pending_, path_)) {
    errno = failed.value();
    return false;
  }
  ::close(std::exchange(fd_, -1));
  return true;
}

Result<void> write_whole_file(const std::string& path, std::string_view text) {
  PendingFile file(path);
  if (!file.created() || !file.write(text.data(), std::ssize(text), 0) || !file.commit())
    return Error::resource(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
  return {};
}

}  // namespace millrace
