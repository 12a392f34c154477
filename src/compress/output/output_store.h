// OutputStore: keeps the bytes of finished tensors until the output is written, in memory or in a file without a name
// (scratch_file.h). Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compress/output/scratch_file.h"

namespace millrace {

class OutputStore {
 public:
  struct Bytes {
    std::vector<uint8_t> memory;
    int64_t offset = 0;  // offset in the file
    int64_t size = 0;    // 0: no bytes are stored
  };

  // From now on, keeps new data in a file next to `path`. Errors: resource.
  Result<void> use_disk(const std::string& path);
  bool on_disk() const { return file_.has_value(); }

  // Errors: resource.
  Result<Bytes> keep(std::vector<uint8_t> bytes);
  // Copies all of `bytes` to `to`. Errors: resource.
  Result<void> copy(const Bytes& bytes, uint8_t* to) const;

 private:
  std::optional<ScratchFile> file_;
  int64_t end_ = 0;
};

}  // namespace millrace
