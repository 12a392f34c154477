// AlignedBuffer: owned, 64-byte aligned, zero-filled memory for packed weights, activations and KV.
// Uses mmap, so that pages are really zeroed and really returned; large buffers are aligned to huge pages and request
// them. view() creates a non-owning buffer, for parts of a larger one.
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
  // Reserves addresses without memory: pages are allocated on first write, read as zeros before, and are freed by
  // give_back(). With `huge` they are huge pages, otherwise never, so that only touched pages use memory.
  // Errors: resource, when the process may not map that many addresses.
  static Result<AlignedBuffer> reserve(int64_t bytes, const char* what, bool huge);
  // `data` must be 64-byte aligned and outlive the view. It may be read-only memory if it is only read.
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
  // Selects the size of pages of an owned buffer that are written first from now on. With small pages, few bytes cost
  // little memory and time. With huge pages, as a large buffer has at first, data in small pages moves to huge ones.
  // Without effect where the system has no huge pages.
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
