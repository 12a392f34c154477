// AgeHistogram: a histogram of durations with power-of-two buckets. add() costs a few instructions and allocates
// nothing.
//
//   bucket 0: under 1 ms   bucket i: [2^(i-1), 2^i) ms   the last one: everything from 2^38 ms (8.7 years)
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace millrace {

class AgeHistogram {
 public:
  static constexpr int kBuckets = 40;

  void add(double seconds) {
    const double ms = std::clamp(seconds * 1000, 0.0, 0x1p62);
    ++buckets_[static_cast<size_t>(std::min<int>(std::bit_width(static_cast<uint64_t>(ms)), kBuckets - 1))];
    ++count_;
    sum_ += std::max(0.0, seconds);
  }
  void merge(const AgeHistogram& other) {
    for (size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
    count_ += other.count_;
    sum_ += other.sum_;
  }
  int64_t count() const { return count_; }
  double mean_seconds() const { return count_ ? sum_ / static_cast<double>(count_) : 0; }
  // Returns the upper edge of the quantile's bucket, which is at most a factor of 2 too large. 0: the histogram is
  // empty.
  double quantile_seconds(double q) const {
    int64_t left = static_cast<int64_t>(q * static_cast<double>(count_));
    for (int i = 0; count_ && i < kBuckets; ++i) {
      left -= buckets_[static_cast<size_t>(i)];
      if (left < 0 || i == kBuckets - 1) return static_cast<double>(uint64_t{1} << i) / 1000;
    }
    return 0;
  }
  const std::array<int64_t, kBuckets>& buckets() const { return buckets_; }

 private:
  std::array<int64_t, kBuckets> buckets_{};
  int64_t count_ = 0;
  double sum_ = 0;
};

}  // namespace millrace
