#include "base/publish.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/exchange_names.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::error_code last_error() { return {errno, std::generic_category()}; }

// Writes a file or folder to disk. Some file systems cannot write folders; their names may then be lost with the power.
std::error_code write_out(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return errno == ENOENT ? last_error() : std::error_code();  // a link, for example, has no content
  struct stat about {};
  std::error_code failed;
  if (::fsync(fd) != 0 && ::fstat(fd, &about) == 0 && S_ISREG(about.st_mode)) failed = last_error();
  ::close(fd);
  return failed;
}

// For file systems that cannot exchange names: after a crash in between, the old folder is beside its name.
bool replace_aside(const fs::path& fresh, const fs::path& path) {
  const fs::path aside = path.string() + ".old";
  std::error_code ignored;
  fs::remove_all(aside, ignored);
  if (::rename(path.c_str(), aside.c_str()) != 0) return false;
  if (::rename(fresh.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    ::rename(aside.c_str(), path.c_str());
    errno = reason;
    return false;
  }
  fs::remove_all(aside, ignored);
  return true;
}

}  // namespace

std::error_code publish(const fs::path& fresh, const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(fs::symlink_status(fresh, ignored)))
    for (fs::recursive_directory_iterator at(fresh, ignored), end; !ignored && at != end; at.increment(ignored))
      if (const auto failed = write_out(at->path())) return failed;
  if (const auto failed = write_out(fresh)) return failed;
  if (::rename(fresh.c_str(), path.c_str()) != 0) {
    if (errno != ENOTEMPTY && errno != EEXIST) return last_error();
    if (exchange_names(fresh, path))
      fs::remove_all(fresh, ignored);
    else if ((errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) || !replace_aside(fresh, path))
      return last_error();
  }
  const fs::path folder = path.parent_path();
  write_out(folder.empty() ? fs::path(".") : folder);
  return {};
}

}  // namespace millrace
