// DecodeTimes: learns the duration of decode-only steps as a function of their number of tokens. The function is
// uneven, because kernels process blocks of tokens: a step of 5 tokens may take as long as one of 8. Each number of
// tokens up to 32 therefore has its own mean; above, each octave has 8 means. A number without recent steps is
// interpolated from its neighbours, so that one slow step has no lasting effect.
#pragma once

#include <array>
#include <cstdint>

#include "schedule/cost_model.h"

namespace millrace {

class DecodeTimes {
 public:
  void observe(int64_t tokens, double seconds, const CostModel& cost);
  // Returns the expected duration of a step. If no similar step has been observed, `cost` determines the growth with
  // the number of tokens.
  double seconds(int64_t tokens, const CostModel& cost) const;

 private:
  struct Seen {
    double weight = 0, tokens = 0, seconds = 0;  // tokens and seconds are means over steps of total `weight`
    int64_t at = 0;                              // number of the last of these steps
  };
  static constexpr int kExact = 32, kPerOctave = 8, kOctaves = 6;

  static size_t index(int64_t tokens);
  double weight(const Seen& seen) const;

  std::array<Seen, kExact + kPerOctave * kOctaves + 1> seen_;
  int64_t steps_ = 0;
};

}  // namespace millrace
