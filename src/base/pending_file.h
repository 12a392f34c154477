// PendingFile: a file that appears under its name when it is complete, and is removed otherwise. Until then it is in
// the same folder, under a name that no other process or thread uses. Functions that return false leave the reason in
// errno.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace millrace {

class PendingFile {
 public:
  explicit PendingFile(std::string path);
  PendingFile(PendingFile&& other) noexcept
      : path_(std::move(other.path_)), pending_(std::move(other.pending_)), fd_(std::exchange(other.fd_, -1)) {}
  PendingFile& operator=(PendingFile&&) = delete;
  ~PendingFile();

  bool created() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  bool write(const void* data, int64_t bytes, int64_t at);
  // Gives the file its name, on disk; replaces an older one.
  bool commit();

 private:
  std::string path_, pending_;
  int fd_ = -1;
};

// A file of this text. Errors: resource (names the path).
Result<void> write_whole_file(const std::string& path, std::string_view text);

}  // namespace millrace
