// A suffix is of type S if it is smaller than the one after it, else of type L; behind the text is an end that is
// smaller than all letters. An S suffix behind an L one is an LMS suffix. Where the order of the LMS suffixes is known,
// two passes over the array give that of all others. It is found in the same way: with the LMS suffixes in any order,
// the passes sort the substrings between them, whose names form a text of at most half the length.
#include "speculate/suffix_array.h"

#include <algorithm>

namespace millrace {
namespace {

class InducedSort {
 public:
  InducedSort(std::span<const int32_t> text, int32_t letters)
      : text_(text),
        size_(static_cast<int32_t>(text.size())),
        counts_(static_cast<size_t>(letters)),
        small_(text.size()) {
    for (const int32_t letter : text) ++counts_[static_cast<size_t>(letter)];
    for (int32_t i = size_ - 2; i >= 0; --i)
      small_[at(i)] = text_[at(i)] < text_[at(i + 1)] || (text_[at(i)] == text_[at(i + 1)] && small_[at(i + 1)]);
  }

  std::vector<int32_t> sort() {
    std::vector<int32_t> order(text_.size());
    std::vector<int32_t> lms = lms_suffixes();
    if (!lms.empty()) {
      induce(lms, order);
      sort_lms(order, lms);
    }
    induce(lms, order);
    return order;
  }

 private:
  static size_t at(int32_t index) { return static_cast<size_t>(index); }
  bool is_lms(int32_t i) const { return i > 0 && small_[at(i)] && !small_[at(i - 1)]; }

  std::vector<int32_t> lms_suffixes() const {
    std::vector<int32_t> out;
    for (int32_t i = 1; i < size_; ++i)
      if (is_lms(i)) out.push_back(i);
    return out;
  }

  // Each letter's first place in the array, or the one behind its last.
  void begin_places(bool ends) {
    places_.resize(counts_.size());
    int32_t place = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      places_[i] = ends ? place + counts_[i] : place;
      place += counts_[i];
    }
  }

  // Sorts all suffixes, given the order of the LMS suffixes.
  void induce(const std::vector<int32_t>& lms, std::vector<int32_t>& order) {
    std::ranges::fill(order, -1);
    begin_places(true);
    for (size_t i = lms.size(); i-- > 0;) order[at(--places_[at(text_[at(lms[i])])])] = lms[i];
    begin_places(false);
    const auto put_large = [&](int32_t i) { order[at(places_[at(text_[at(i)])]++)] = i; };
    put_large(size_ - 1);
    for (int32_t place = 0; place < size_; ++place) {
      const int32_t before = order[at(place)] - 1;
      if (before >= 0 && !small_[at(before)]) put_large(before);
    }
    begin_places(true);
    for (int32_t place = size_ - 1; place >= 0; --place) {
      const int32_t before = order[at(place)] - 1;
      if (before >= 0 && small_[at(before)]) order[at(--places_[at(text_[at(before)])])] = before;
    }
  }

  // Whether the substrings from two LMS suffixes to the next one each are equal. One that has the end equals no other.
  bool equal_substrings(int32_t a, int32_t b) const {
    for (int32_t i = 0;; ++i) {
      if (a + i == size_ || b + i == size_ || text_[at(a + i)] != text_[at(b + i)]) return false;
      if (i == 0) continue;
      const bool ends = is_lms(a + i);
      if (ends != is_lms(b + i)) return false;
      if (ends) return true;
    }
  }

  // `order` has the LMS substrings in ascending order; puts the LMS suffixes into theirs.
  void sort_lms(std::vector<int32_t>& order, std::vector<int32_t>& lms) const {
    std::vector<int32_t> sorted;
    sorted.reserve(lms.size());
    for (const int32_t i : order)
      if (is_lms(i)) sorted.push_back(i);
    // No two LMS suffixes are neighbours, so half an index is a place for each name.
    std::ranges::fill(order, -1);
    int32_t name = 0;
    for (size_t i = 0; i < sorted.size(); ++i) {
      if (i > 0 && !equal_substrings(sorted[i - 1], sorted[i])) ++name;
      order[at(sorted[i] / 2)] = name;
    }
    if (name + 1 < static_cast<int32_t>(lms.size())) {
      std::vector<int32_t> names;
      names.reserve(lms.size());
      for (const int32_t i : lms) names.push_back(order[at(i / 2)]);
      const std::vector<int32_t> by_name = suffix_array(names, name + 1);
      for (size_t i = 0; i < sorted.size(); ++i) sorted[i] = lms[at(by_name[i])];
    }
    lms = std::move(sorted);
  }

  std::span<const int32_t> text_;
  int32_t size_;
  std::vector<int32_t> counts_, places_;  // of each letter
  std::vector<bool> small_;               // type S
};

}  // namespace

std::vector<int32_t> suffix_array(std::span<const int32_t> text, int32_t letters) {
  if (text.empty()) return {};
  return InducedSort(text, letters).sort();
}

}  // namespace millrace
