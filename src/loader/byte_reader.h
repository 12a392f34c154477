// ByteReader: a bounds-checked little-endian cursor over a file image. A read that would exceed the image returns false
// and does not move the cursor, so that the caller can report the offset of the error.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace millrace {

static_assert(std::endian::native == std::endian::little, "file images are read in place as little-endian");

class ByteReader {
 public:
  explicit ByteReader(std::span<const uint8_t> image, uint64_t start = 0) : image_(image), position_(start) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return image_.size() - position_; }

  template <typename T>
  bool read(T& value) {
    static_assert(std::is_arithmetic_v<T>);
    if (left() < sizeof(T)) return false;
    std::memcpy(&value, image_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }

  // Sets `view` to the next `bytes` bytes of the image; false if fewer remain.
  bool take(uint64_t bytes, std::span<const uint8_t>& view) {
    if (left() < bytes) return false;
    view = image_.subspan(position_, bytes);
    position_ += bytes;
    return true;
  }

  bool take_text(uint64_t bytes, std::string_view& view) {
    std::span<const uint8_t> raw;
    if (!take(bytes, raw)) return false;
    view = {reinterpret_cast<const char*>(raw.data()), raw.size()};
    return true;
  }

 private:
  std::span<const uint8_t> image_;
  uint64_t position_;  // never past the end
};

}  // namespace millrace
