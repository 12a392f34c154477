// KeptShares: the share of drafted tokens that are kept, by their place in the draft, where all before them are kept.
// Old observations count less and less. Places are pooled in octaves, as few drafts are long.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace millrace {

class KeptShares {
 public:
  // `forget`: factor of the weight of earlier observations of these places.
  void add(int64_t place, bool kept, double forget) {
    Count& count = counts_[index(place)];
    count.tried = forget * count.tried + 1;
    count.kept = forget * count.kept + (kept ? 1 : 0);
  }
  // As if `weight` tokens of which `prior` were kept had been observed, too.
  double share(int64_t place, double prior, double weight) const {
    const Count& count = counts_[index(place)];
    return (count.kept + weight * prior) / (count.tried + weight);
  }
  // Observations lose weight though nothing new was observed.
  void fade(double factor) {
    for (Count& count : counts_) count = {factor * count.tried, factor * count.kept};
  }

 private:
  struct Count {
    double tried = 0, kept = 0;
  };
  static constexpr size_t kOctaves = 7;  // 0, 1..2, 3..6, 7..14, ...
  static size_t index(int64_t place) {
    return std::min(kOctaves, static_cast<size_t>(std::bit_width(static_cast<uint64_t>(place) + 1))) - 1;
  }
  std::array<Count, kOctaves> counts_;
};

}  // namespace millrace
