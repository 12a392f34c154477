#include "tensor/aligned_buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

namespace millrace {

Result<AlignedBuffer> AlignedBuffer::allocate(int64_t bytes, const char* what) {
  AlignedBuffer buffer;
  if (bytes < 0) return Error::internal(fmt::format("{}: negative size {}", what, bytes));
  if (bytes == 0) return buffer;
  void* memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return Error::resource(fmt::format("{}: cannot allocate {} bytes; free memory or choose a smaller size", what, bytes));
  }
  if (bytes >= int64_t{4} << 20) madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  buffer.data_ = static_cast<uint8_t*>(memory);
  buffer.bytes_ = bytes;
  return buffer;
}

void AlignedBuffer::release() {
  if (data_) munmap(data_, static_cast<size_t>(bytes_));
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace millrace
