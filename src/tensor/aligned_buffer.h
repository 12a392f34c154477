// AlignedBuffer: owned, 64-byte aligned, zero-filled memory for packed weights, activations and KV.
// It comes from mmap, so that the pages are really zero and really returned; large buffers start on a huge page and ask
// for such. view() makes one that owns nothing, for parts of a larger memory.
#pragma once

#include <cstdint>
#include <utility>

#include "base/result.h"

namespace millrace {

// Of a huge page on every machine that matters here: large memory starts at multiples of it.
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

  // Errors: resource, naming `what` and the bytes wanted.
  static Result<AlignedBuffer> allocate(int64_t bytes, const char* what);
  // Addresses without memory: pages come when they are written, read as zeros before, and go with give_back(). With
  // `huge` they come in huge pages, otherwise never, so that no more is there than was touched.
  // Errors: resource, when the process may not have as many addresses.
  static Result<AlignedBuffer> reserve(int64_t bytes, const char* what, bool huge);
  // `data` must be 64-byte aligned and outlive the view. It may be read-only memory: then only read it.
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
  // Whole pages of [offset, offset + bytes) of an own buffer lose their memory and are zero from then on.
  void give_back(int64_t offset, int64_t bytes);

 private:
  void release();
  uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
  bool owned_ = false;
};

}  // namespace millrace
