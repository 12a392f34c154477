#include "compress/output/residual_store.h"

#include <algorithm>
#include <utility>

namespace millrace {

Result<ResidualStore> ResidualStore::create(int64_t windows, int64_t values, int64_t in_memory, const std::string& path,
                                            std::shared_ptr<MemoryAccounts> accounts) {
  ResidualStore made;
  made.values_ = values;
  const int64_t bytes = windows * values * static_cast<int64_t>(sizeof(float));
  if (bytes <= in_memory) {
    MILLRACE_TRY(made.hold_, MemoryHold::take(std::move(accounts), "residual streams", bytes, "raise --memory"));
    made.memory_.resize(static_cast<size_t>(windows * values));
  } else {
    MILLRACE_TRY(made.file_, ScratchFile::create(path));
  }
  return made;
}

Result<void> ResidualStore::write(int64_t window, const float* rows) {
  const int64_t bytes = values_ * static_cast<int64_t>(sizeof(float));
  if (file_) return file_->write(rows, bytes, window * bytes);
  std::copy_n(rows, values_, memory_.begin() + window * values_);
  return {};
}

Result<void> ResidualStore::read(int64_t window, float* rows) const {
  const int64_t bytes = values_ * static_cast<int64_t>(sizeof(float));
  if (file_) return file_->read(rows, bytes, window * bytes);
  std::copy_n(memory_.begin() + window * values_, values_, rows);
  return {};
}

}  // namespace millrace
