// TextSearch: finds a needle in texts in linear time (Knuth, Morris, Pratt 1977), and charges for every byte it reads.
// std::string_view::find() may need time proportional to text times needle, while the budget is charged for the text
// only.
//
// A render creates one object per needle and then calls find() or rfind() any number of times. Not thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/template/value.h"

namespace millrace::jinja {

class TextSearch {
 public:
  // `needle` must outlive the object. Searches fail with a resource error if the budget is exhausted.
  TextSearch(std::string_view needle, Budget& budget) : needle_(needle), budget_(budget) {}
  ~TextSearch() { budget_.memory += bytes_; }
  TextSearch(const TextSearch&) = delete;

  // Returns the first occurrence at or after `from`; npos if there is none. Charges for the bytes up to its end.
  size_t find(std::string_view text, size_t from = 0);
  // Returns the last occurrence; npos if there is none. Charges for the bytes from its beginning.
  size_t rfind(std::string_view text);

 private:
  template <bool Backwards>
  size_t scan(std::string_view text, size_t from);
  template <bool Backwards>
  void prepare();

  std::string_view needle_;
  Budget& budget_;
  // for each prefix of the needle, the length of its longest proper prefix that is also its suffix
  std::vector<uint32_t> border_;
  bool prepared_ = false, backwards_ = false;
  int64_t bytes_ = 0;
};

// Returns true if both texts are equal. Charges for the bytes that are compared.
inline bool equal_texts(std::string_view a, std::string_view b, Budget& budget) {
  if (a.size() != b.size()) return false;
  if (a.size() >= 16) budget.spend_bytes(a.size());
  return a == b;
}

}  // namespace millrace::jinja
