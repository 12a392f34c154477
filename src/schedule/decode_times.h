// DecodeTimes: how long a step that only decodes takes, by its tokens, learned from those that ran. Kernels make the
// times uneven: a step of 5 tokens may take as long as one of 8, so each number of tokens up to 32 has a mean of its
// own, and octaves above are divided by 8. What has not been seen of late is filled in from its neighbours, which finds
// out in time where a single slow step has given a wrong picture.
#pragma once

#include <array>
#include <cstdint>

#include "schedule/cost_model.h"

namespace millrace {

class DecodeTimes {
 public:
  void observe(int64_t tokens, double seconds, const CostModel& cost);
  // Where nothing similar has been seen, `cost` tells how it grows with the tokens.
  double seconds(int64_t tokens, const CostModel& cost) const;

 private:
  struct Seen {
    double weight = 0, tokens = 0, seconds = 0;  // means
    int64_t at = 0;                              // number of the last such step
  };
  static constexpr int kExact = 32, kPerOctave = 8, kOctaves = 6;

  static size_t index(int64_t tokens);
  double weight(const Seen& seen) const;

  std::array<Seen, kExact + kPerOctave * kOctaves + 1> seen_;
  int64_t steps_ = 0;
};

}  // namespace millrace
