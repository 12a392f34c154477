// Sums of two-digit numbers, for the tasks `arithmetic` and `steps`.
#pragma once

#include <numeric>

#include "lab/words.h"

namespace millrace::lab {

inline std::vector<int64_t> draw_sum(LabRandom& random) {
  std::vector<int64_t> numbers(static_cast<size_t>(random.between(2, 4)));
  for (int64_t& number : numbers) number = random.between(10, 99);
  return numbers;
}

inline std::string sum_text(const std::vector<int64_t>& numbers) {
  std::string text;
  for (int64_t number : numbers) text += (text.empty() ? "" : " + ") + numbered(number);
  return text;
}

inline int64_t total(const std::vector<int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
}

// Returns the answer of the task `steps`: the partial sums, then "The answer is N." (steps.cc).
std::string worked_sum(const std::vector<int64_t>& numbers);

}  // namespace millrace::lab
