#include "compress/output/output_store.h"

#include <algorithm>
#include <utility>

namespace millrace {

Result<void> OutputStore::use_disk(const std::string& path) {
  MILLRACE_TRY(file_, ScratchFile::create(path));
  return {};
}

Result<OutputStore::Bytes> OutputStore::keep(std::vector<uint8_t> bytes) {
  Bytes kept;
  kept.size = std::ssize(bytes);
  if (!file_) {
    kept.memory = std::move(bytes);
    return kept;
  }
  kept.offset = end_;
  MILLRACE_TRY_VOID(file_->write(bytes.data(), kept.size, end_));
  end_ += kept.size;
  return kept;
}

Result<void> OutputStore::copy(const Bytes& bytes, uint8_t* to) const {
  if (file_) return file_->read(to, bytes.size, bytes.offset);
  std::ranges::copy(bytes.memory, to);
  return {};
}

}  // namespace millrace
