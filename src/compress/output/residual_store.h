// ResidualStore: the residual streams of a text's windows before one layer, from which a later run continues with that
// layer. They are in memory, or in a file without a name (scratch_file.h). Not thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/memory_accounts.h"
#include "compress/output/scratch_file.h"

namespace millrace {

class ResidualStore {
 public:
  // Stores `values` floats a window: in memory if that needs at most `in_memory` bytes, otherwise in a file next to
  // `path`. Errors: resource.
  static Result<ResidualStore> create(int64_t windows, int64_t values, int64_t in_memory, const std::string& path,
                                      std::shared_ptr<MemoryAccounts> accounts);

  Result<void> write(int64_t window, const float* rows);
  // Reads a window that was written. Errors: resource.
  Result<void> read(int64_t window, float* rows) const;
  bool on_disk() const { return file_.has_value(); }

 private:
  ResidualStore() = default;
  int64_t values_ = 0;
  std::vector<float> memory_;
  std::optional<ScratchFile> file_;
  MemoryHold hold_;
};

}  // namespace millrace
