// Searches the 0/1 vectors of a fixed length for the one with the highest value of an objective: which blocks of a
// model a self-drafting pass leaves out (Zhang et al., 2024, Draft & Verify). Pure; the same seed gives the same
// trials.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"

namespace millrace {

using SkipVector = std::vector<uint8_t>;

struct SkipTrial {
  SkipVector skipped;
  double value = 0;
};

struct SkipSearchOptions {
  // Chooses each trial by a Gaussian process over those before it; false: at random.
  bool bayes = true;
  int64_t trials = 100;
  uint64_t seed = 1;
  std::vector<SkipVector> first;  // tried before all others
};

// Returns the best trial, the earliest of equal ones. No vector is tried twice; a search ends early where none is left.
// Errors: those of `value`, which may end the search.
Result<SkipTrial> search_skips(int64_t size, const SkipSearchOptions& options,
                               const std::function<Result<double>(const SkipVector&)>& value);

}  // namespace millrace
