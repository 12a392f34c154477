#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace {

// Byte strings by id, stored in one buffer.
class PackedStrings {
 public:
  void push(std::string_view text) {
    bytes_.append(text);
    ends_.push_back(bytes_.size());
  }
  std::string_view operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(bytes_).substr(begin, ends_[i] - begin);
  }
  size_t size() const { return ends_.size(); }

 private:
  std::string bytes_;
  std::vector<size_t> ends_;
};

}  // namespace millrace
