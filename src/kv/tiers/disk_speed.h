// Measures how fast a file can be read past the page cache, with the reads that stores and weight sources use
// (block_io.h): the roof of a disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace {

inline constexpr int64_t kDiskPieceBytes = int64_t{1} << 20;  // bytes of one read of weights

struct ReadSpeed {
  double gb_per_s = 0;
  std::string_view io;  // "io_uring", "pread"
  bool direct = false;  // false: the file system has no direct reads, and the page cache may have answered
};

// Reads pieces of `piece_bytes`, a multiple of 4 KiB, in the order of the file and from its beginning again, with
// `depth` of them in flight (or all pieces of a smaller file), for about `seconds`. Errors: user (the file cannot be
// opened, or is smaller than a piece), storage.
Result<ReadSpeed> measure_disk_speed(const std::string& path, int64_t piece_bytes, int64_t depth, double seconds);

}  // namespace millrace
