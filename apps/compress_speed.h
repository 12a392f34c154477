// The speed of a compressed model compared with its input's, on this machine: for `millrace compress --evaluate`.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "run/language_model.h"

namespace millrace {

// Tokens per second of one stream, of each round.
struct SpeedRounds {
  std::vector<double> prefill, decode;
};

struct SpeedComparison {
  int threads = 0;
  int64_t prompt = 0, generate = 0;  // tokens of a round
  SpeedRounds before, after;
};

double median_of(std::vector<double> values);

// Rounds in turns, so that other load on the machine meets both. `threads`: 0 for all cores. `passed`: the fraction
// done; may be null. Errors: user, resource.
Result<SpeedComparison> compare_speed(const LanguageModel& before, const LanguageModel& after, int threads,
                                      const std::function<void(double)>& passed);

}  // namespace millrace
