// MappedFile: a whole file mapped read-only and shared by all views of it. release() unmaps pages that are no longer
// needed; reading such a page maps it again from the page cache.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace millrace {

class MappedFile {
 public:
  // Errors: corrupt (missing, unreadable, a directory, empty), with the path and the system's reason.
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  int64_t modified_ns() const { return modified_ns_; }  // since 1970, when the file was opened

  // Prefaults every page of [begin, begin + bytes), as far as the system supports it.
  void populate(size_t begin, size_t bytes) const;
  // Starts reading [begin, begin + bytes) and returns without waiting.
  void prefetch(size_t begin, size_t bytes) const;
  // Releases the whole pages of [begin, begin + bytes) from this process's memory.
  void release(size_t begin, size_t bytes) const;

 private:
  MappedFile() = default;
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  int64_t modified_ns_ = 0;
};

}  // namespace millrace
