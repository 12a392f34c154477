// ScratchFile: bytes on the disk for the time of one run. The file has no name once it is open, so it disappears when
// the run ends in any way. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace millrace {

class ScratchFile {
 public:
  // Creates a file in the folder of `path`. Errors: resource.
  static Result<ScratchFile> create(const std::string& path);
  ~ScratchFile();
  ScratchFile(ScratchFile&& other) noexcept { *this = std::move(other); }
  ScratchFile& operator=(ScratchFile&& other) noexcept;

  // Errors: resource (the disk is full or fails).
  Result<void> write(const void* data, int64_t bytes, int64_t offset);
  // Reads bytes that were written. Errors: resource.
  Result<void> read(void* to, int64_t bytes, int64_t offset) const;

 private:
  ScratchFile() = default;
  int file_ = -1;
  std::string path_;  // for messages
};

}  // namespace millrace
