// KeptShares: for each place in a draft, the share of drafted tokens that are kept if all before them are kept. Older
// observations have less weight. Places are pooled in octaves, because few drafts are long.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace millrace {

class KeptShares {
 public:
  // Adds an observation. `forget`: factor applied to earlier observations of the same octave.
  void add(int64_t place, bool kept, double forget) {
    Count& count = counts_[index(place)];
    count.tried = forget * count.tried + 1;
    count.kept = forget * count.kept + (kept ? 1 : 0);
  }
  // Returns the share at `place`, averaged with a prior share that counts as `weight` observations.
  double share(int64_t place, double prior, double weight) const {
    const Count& count = counts_[index(place)];
    return (count.kept + weight * prior) / (count.tried + weight);
  }
  // Multiplies the weight of all observations by `factor`.
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
