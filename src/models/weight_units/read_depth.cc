#include "models/weight_units/read_depth.h"

#include <algorithm>

namespace millrace {

void ReadDepth::was_read(int64_t bytes, int64_t ns) {
  if (given_ > 0 || chosen_ || candidate_ == kCandidates.size()) return;
  if (settled_ < kSettleBytes) {
    settled_ += bytes;
    return;
  }
  bytes_ += bytes;
  ns_ += ns;
  if (bytes_ < kTrialBytes) return;
  rates_[candidate_++] = static_cast<double>(bytes_) / static_cast<double>(std::max<int64_t>(1, ns_));
  settled_ = bytes_ = ns_ = 0;
  if (candidate_ < kCandidates.size())
    now_ = kCandidates[candidate_];
  else
    choose();
}

void ReadDepth::choose() {
  if (given_ > 0 || chosen_) return;
  chosen_ = true;
  now_ = 16;
  if (candidate_ < kCandidates.size()) return;
  const double best = std::ranges::max(rates_);
  const auto near = std::ranges::find_if(rates_, [&](double rate) { return rate >= 0.95 * best; });
  now_ = kCandidates[static_cast<size_t>(near - rates_.begin())];
}

}  // namespace millrace
