// ReadDepth: the number of reads in flight. If it is not given, the reads of the start measure it: each candidate reads
// some of the units that stay in memory, and the smallest one counts whose rate is within 5 % of the best. More reads
// in flight than a disk needs only delay a read that a pass waits for. Used under the store's lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace millrace {

class ReadDepth {
 public:
  // `given`: 0: measured.
  explicit ReadDepth(int64_t given) : given_(given), now_(given > 0 ? given : kCandidates[0]) {}

  int64_t max() const { return given_ > 0 ? given_ : kCandidates.back(); }
  int64_t now() const { return now_; }
  // Called with the bytes that were read within `ns` nanoseconds, with now() reads in flight.
  void was_read(int64_t bytes, int64_t ns);
  // Ends the measurement. Without enough reads, the depth is 16.
  void choose();

 private:
  static constexpr std::array<int64_t, 4> kCandidates = {4, 8, 16, 32};
  static constexpr int64_t kSettleBytes = int64_t{16} << 20;  // read before a candidate counts
  static constexpr int64_t kTrialBytes = int64_t{48} << 20;

  const int64_t given_;
  int64_t now_;
  bool chosen_ = false;
  size_t candidate_ = 0;
  int64_t settled_ = 0, bytes_ = 0, ns_ = 0;        // bytes and time of the present candidate
  std::array<double, kCandidates.size()> rates_{};  // bytes per nanosecond
};

}  // namespace millrace
