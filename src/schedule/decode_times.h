// DecodeTimes: the time of a step that only decodes, by its number of tokens, learned from the steps that ran. Kernels
// make the times uneven: a step of 5 tokens may take as long as one of 8. So each number of tokens up to 32 has its own
// mean, and octaves above are divided by 8. Numbers that have not been seen lately are filled in from their neighbours,
// so one slow step does not give a wrong picture for long.
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
