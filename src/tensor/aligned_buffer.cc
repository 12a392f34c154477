#include "tensor/aligned_buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/system.h"

namespace millrace {
namespace {

constexpr int64_t kLarge = 2 * kHugePageBytes;  // below this, huge pages would waste as much as they gain

// Maps `bytes` from an address that is a multiple of `alignment` (a power of two, at least a page).
void* map_aligned(size_t bytes, size_t alignment, int flags = 0) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const size_t whole = bytes + alignment;
  void* memory = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (memory == MAP_FAILED) return memory;
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t start = (begin + alignment - 1) & ~(alignment - 1);
  const uintptr_t end = (start + bytes + page - 1) & ~(page - 1);
  const uintptr_t limit = (begin + whole + page - 1) & ~(page - 1);
  if (start > begin) munmap(memory, start - begin);
  if (limit > end) munmap(reinterpret_cast<void*>(end), limit - end);
  return reinterpret_cast<void*>(start);
}

}  // namespace

Result<AlignedBuffer> AlignedBuffer::allocate(int64_t bytes, const char* what) {
  AlignedBuffer buffer;
  if (bytes < 0) return Error::internal(fmt::format("{}: negative size {}", what, bytes));
  if (bytes == 0) return buffer;
  const bool large = bytes >= kLarge && bytes < INT64_MAX - 2 * kHugePageBytes;
  const auto size = static_cast<size_t>(bytes);
  void* memory = large ? map_aligned(size, kHugePageBytes)
                       : mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return Error::resource(
        fmt::format("{}: cannot allocate {} bytes; free memory or choose a smaller size", what, bytes));
  }
  if (large) advise_pages(memory, size, PageAdvice::huge);
  buffer.data_ = static_cast<uint8_t*>(memory);
  buffer.bytes_ = bytes;
  buffer.owned_ = true;
  return buffer;
}

Result<AlignedBuffer> AlignedBuffer::reserve(int64_t bytes, const char* what, bool huge) {
  AlignedBuffer buffer;
  if (bytes < 0 || bytes > INT64_MAX - 2 * kHugePageBytes)
    return Error::internal(fmt::format("{}: size {}", what, bytes));
  if (bytes == 0) return buffer;
  void* memory = map_aligned(static_cast<size_t>(bytes), kHugePageBytes, MAP_NORESERVE);
  if (memory == MAP_FAILED) {
    return Error::resource(fmt::format(
        "{}: cannot reserve {} bytes of addresses; lower the size, or the limits on this process's addresses "
        "(ulimit -v, vm.overcommit_memory)",
        what, bytes));
  }
  advise_pages(memory, static_cast<size_t>(bytes), huge ? PageAdvice::huge : PageAdvice::small);
  buffer.data_ = static_cast<uint8_t*>(memory);
  buffer.bytes_ = bytes;
  buffer.owned_ = true;
  return buffer;
}

void AlignedBuffer::use_small_pages() {
  if (owned_ && bytes_ >= kLarge) advise_pages(data_, static_cast<size_t>(bytes_), PageAdvice::small);
}

void AlignedBuffer::use_huge_pages() {
  if (!owned_ || bytes_ < kLarge) return;
  advise_pages(data_, static_cast<size_t>(bytes_), PageAdvice::huge);
  advise_pages(data_, static_cast<size_t>(bytes_), PageAdvice::collapse);
}

void AlignedBuffer::give_back(int64_t offset, int64_t bytes) {
  if (!owned_ || offset < 0 || bytes <= 0 || offset > bytes_ - bytes) return;
  const auto page = static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  const int64_t first = (offset + page - 1) / page * page, last = (offset + bytes) / page * page;
  if (first < last) advise_pages(data_ + first, static_cast<size_t>(last - first), PageAdvice::drop);
}

AlignedBuffer AlignedBuffer::view(const uint8_t* data, int64_t bytes) {
  AlignedBuffer buffer;
  buffer.data_ = const_cast<uint8_t*>(data);
  buffer.bytes_ = bytes;
  return buffer;
}

void AlignedBuffer::release() {
  if (owned_) munmap(data_, static_cast<size_t>(bytes_));
  data_ = nullptr;
  bytes_ = 0;
  owned_ = false;
}

}  // namespace millrace
