// AlignedBuffer: owned, 64-byte aligned, zero-filled memory for packed weights, activations and KV.
// Large ones come from mmap (so that the pages are really zero and really returned).
#pragma once

#include <cstdint>
#include <utility>

#include "base/result.h"

namespace millrace {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  ~AlignedBuffer() { release(); }
  AlignedBuffer(AlignedBuffer&& other) noexcept { *this = std::move(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  // Errors: resource, naming `what` and the bytes wanted.
  static Result<AlignedBuffer> allocate(int64_t bytes, const char* what);

  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }
  template <typename T> T* as() { return reinterpret_cast<T*>(data_); }
  template <typename T> const T* as() const { return reinterpret_cast<const T*>(data_); }
  int64_t bytes() const { return bytes_; }

 private:
  void release();
  uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace millrace
