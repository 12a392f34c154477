// BlockMarks: a set of key blocks before a query block. Lives on the stack, so that a step allocates nothing.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace millrace {

inline constexpr int64_t kMaxPatternBlocks = 1 << 16;  // maximum number of blocks in a stream

class BlockMarks {
 public:
  // Marks blocks [0, end), none of them at first; end <= kMaxPatternBlocks.
  explicit BlockMarks(int64_t end) : end_(end) { std::fill_n(words_.begin(), words(), uint64_t{0}); }

  int64_t end() const { return end_; }

  // Blocks that do not exist are ignored.
  void add(int64_t block) {
    if (block >= 0 && block < end_) words_[static_cast<size_t>(block / 64)] |= uint64_t{1} << (block % 64);
  }
  void add(int64_t first, int64_t last) {  // exclusive
    for (int64_t block = std::max<int64_t>(0, first); block < std::min(end_, last); ++block) add(block);
  }

  bool has(int64_t block) const { return words_[static_cast<size_t>(block / 64)] >> (block % 64) & 1; }

  int64_t count() const {
    int64_t sum = 0;
    for (size_t i = 0; i < words(); ++i) sum += std::popcount(words_[i]);
    return sum;
  }

  // Calls use(block) for each, ascending.
  template <typename Use>
  void each(Use use) const {
    for (size_t i = 0; i < words(); ++i)
      for (uint64_t word = words_[i]; word != 0; word &= word - 1)
        use(static_cast<int64_t>(i) * 64 + std::countr_zero(word));
  }

 private:
  size_t words() const { return static_cast<size_t>((end_ + 63) / 64); }

  int64_t end_;
  std::array<uint64_t, kMaxPatternBlocks / 64> words_;  // the first words() are used
};

}  // namespace millrace
