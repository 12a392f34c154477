// Finds the blocks with the highest scores, for dynamic patterns. Allocates nothing.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <span>

#include "attention/block_marks.h"

namespace millrace {

// Marks the `count` unmarked blocks with the highest scores; among equal scores, the newer blocks. `work`: room for
// scores.size() floats.
inline void mark_top(std::span<const float> scores, int64_t count, std::span<float> work, BlockMarks& marks) {
  int64_t candidates = 0;
  for (size_t i = 0; i < scores.size(); ++i)
    if (!marks.has(static_cast<int64_t>(i))) work[static_cast<size_t>(candidates++)] = scores[i];
  if (count <= 0 || candidates == 0) return;
  if (count >= candidates) return marks.add(0, std::ssize(scores));
  std::nth_element(work.begin(), work.begin() + count - 1, work.begin() + candidates, std::greater<>());
  const float least = work[static_cast<size_t>(count - 1)];
  int64_t equal = count - std::count_if(work.begin(), work.begin() + count, [&](float x) { return x > least; });
  for (int64_t i = std::ssize(scores) - 1; i >= 0; --i) {
    if (marks.has(i)) continue;
    const float score = scores[static_cast<size_t>(i)];
    if (score > least || (score == least && equal-- > 0)) marks.add(i);
  }
}

}  // namespace millrace
