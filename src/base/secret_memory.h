// Memory that may hold a client's API key. It is overwritten before it is freed or reused.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>

namespace millrace {

// Overwrites memory with zeros. The compiler does not remove the write, although the memory is not read again.
inline void wipe(void* data, size_t bytes) {
  if (bytes == 0) return;
  std::memset(data, 0, bytes);
  asm volatile("" : : "r"(data) : "memory");
}

// Overwrites the characters and empties the text.
inline void wipe(std::string& text) {
  wipe(text.data(), text.size());
  text.clear();
}

// An allocator that overwrites memory before it frees it. A buffer that grows leaves no copy of its old contents.
template <typename T>
struct WipingAllocator {
  using value_type = T;
  WipingAllocator() = default;
  template <typename Other>
  WipingAllocator(const WipingAllocator<Other>&) {}
  T* allocate(size_t count) { return std::allocator<T>().allocate(count); }
  void deallocate(T* data, size_t count) {
    wipe(static_cast<void*>(data), count * sizeof(T));
    std::allocator<T>().deallocate(data, count);
  }
  bool operator==(const WipingAllocator&) const = default;
};

}  // namespace millrace
