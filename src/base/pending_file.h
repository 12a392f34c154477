// PendingFile: a file that appears under its final name only when commit() succeeds. Until then, it is in the same
// folder, under a name that no other process or thread uses; without commit(), the destructor removes it. Functions
// that return false leave the reason in errno.
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
  // Writes the file to disk and gives it its final name. Replaces an older file of that name.
  bool commit();

 private:
  std::string path_, pending_;
  int fd_ = -1;
};

// Writes a file that contains `text`. Errors: resource (names the path).
Result<void> write_whole_file(const std::string& path, std::string_view text);

}  // namespace millrace
