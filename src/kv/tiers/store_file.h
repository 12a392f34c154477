// StoreFile: the prefix store's file, opened, locked and validated. Stored blocks are found again by reading the
// records (store_scan.h). A file of another model or size, or with a damaged header, is recreated; a file that is not a
// store is left alone.
#pragma once

#include <string>

#include "kv/tiers/store_format.h"

namespace millrace {

class StoreFile {
 public:
  struct Options {
    std::string path;
    int64_t bytes = 0;          // maximum file size, preallocated where the file system supports it
    std::string identity_text;  // model of the bytes
    bool direct = true;         // try direct I/O
    double lock_seconds = 4;    // how long to wait for another process to release the file
    StoreOrder order = StoreOrder::arrival;
  };
  // Errors: user (not a store, in use by another process, or too few bytes), resource (disk full or no permission).
  static Result<StoreFile> open(const Options& options, const KvLayout& layout);
  ~StoreFile();
  StoreFile(StoreFile&& other) noexcept { *this = std::move(other); }
  StoreFile& operator=(StoreFile&& other) noexcept;

  int fd() const { return fd_; }
  bool direct() const { return direct_; }  // bypasses the page cache; some file systems refuse
  const StoreGeometry& geometry() const { return geometry_; }
  const StoreIdentity& identity() const { return identity_; }
  bool made_anew() const { return made_anew_; }  // the file is empty
  bool sync() const;

 private:
  StoreFile() = default;
  Result<void> make_anew(const Options& options, const std::string& text);

  int fd_ = -1;
  bool direct_ = false;
  StoreGeometry geometry_;
  StoreIdentity identity_;
  bool made_anew_ = false;
};

}  // namespace millrace
