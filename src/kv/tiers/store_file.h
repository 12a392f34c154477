// StoreFile: the prefix store's file, open, locked and of the right shape. What was stored before is found again by
// reading the records (store_scan.h); a file that is another model's, another size's or whose header is damaged is made
// anew, and a file that is no store at all is left alone.
#pragma once

#include <string>

#include "kv/tiers/store_format.h"

namespace millrace {

class StoreFile {
 public:
  struct Options {
    std::string path;
    int64_t bytes = 0;          // the file's at most, all of them taken at once where the file system can
    std::string identity_text;  // what model the bytes are of
    bool direct = true;         // try direct I/O
    double lock_seconds = 4;    // how long to wait for another process to let go of the file
    StoreOrder order = StoreOrder::arrival;
  };
  // Errors: user (not a store, or another process has it; bytes too few), resource (no
  // room on the disk, or no permission).
  static Result<StoreFile> open(const Options& options, const KvLayout& layout);
  ~StoreFile();
  StoreFile(StoreFile&& other) noexcept { *this = std::move(other); }
  StoreFile& operator=(StoreFile&& other) noexcept;

  int fd() const { return fd_; }
  bool direct() const { return direct_; }  // past the page cache; some file systems refuse
  const StoreGeometry& geometry() const { return geometry_; }
  const StoreIdentity& identity() const { return identity_; }
  bool made_anew() const { return made_anew_; }  // there is nothing in it
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
