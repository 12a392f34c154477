// AlignedBuffer: owned, 64-byte aligned, zero-filled memory for packed weights, activations and KV. It uses mmap, so
// that the system zeroes its pages and receives them back. Large buffers are aligned to huge pages and request them.
// view() creates a non-owning buffer, for a part of a larger one.
#pragma once

#include <cstdint>
#include <utility>

#include "base/result.h"

namespace millrace {

// Huge page size of all supported machines; large buffers are aligned to it.
inline constexpr int64_t kHugePageBytes = int64_t{2} << 20;

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  ~AlignedBuffer() { release(); }
  AlignedBuffer(AlignedBuffer&& other) noexcept { *this = std::move(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(owned_, other.owned_);
    return *this;
  }

  // Errors: resource, naming `what` and the requested bytes.
  static Result<AlignedBuffer> allocate(int64_t bytes, const char* what);
  // Reserves addresses without memory. Pages read as zeros until the first write, which allocates them; give_back()
  // frees them. With `huge`, pages are huge; otherwise they are always small, so that only touched pages use memory.
  // Errors: resource (the process may not map this many addresses).
  static Result<AlignedBuffer> reserve(int64_t bytes, const char* what, bool huge);
  // `data` must be 64-byte aligned and outlive the view. It may be read-only memory if the view is never written.
  static AlignedBuffer view(const uint8_t* data, int64_t bytes);

  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }
  int64_t bytes() const { return bytes_; }
  // Select the size of the pages that an owned buffer allocates from now on. Small pages use less memory and time if
  // few bytes are written. Huge pages are the default of a large buffer; use_huge_pages() also moves the data of small
  // pages to huge ones. No effect if the system has no huge pages.
  void use_small_pages();
  void use_huge_pages();
  // Frees the whole pages of [offset, offset + bytes) of an owned buffer; they read as zeros afterwards.
  void give_back(int64_t offset, int64_t bytes);

 private:
  void release();
  uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
  bool owned_ = false;
};

}  // namespace millrace
