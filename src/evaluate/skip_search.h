// Searches for the 0/1 vector of a fixed length with the highest value of an objective. Used to choose the blocks that
// a self-drafting pass skips (Zhang et al., 2024, Draft & Verify). Pure: equal seeds give equal trials.
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
  // true: each trial is chosen by a Gaussian process over the previous trials; false: at random.
  bool bayes = true;
  int64_t trials = 100;
  uint64_t seed = 1;
  std::vector<SkipVector> first;  // tried before all others
};

// Returns the best trial, on ties the earliest. No vector is tried twice; the search ends early if all have been tried.
// Errors: those of `value`, which end the search.
Result<SkipTrial> search_skips(int64_t size, const SkipSearchOptions& options,
                               const std::function<Result<double>(const SkipVector&)>& value);

}  // namespace millrace
