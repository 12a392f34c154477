#include "schedule/stable_load.h"

#include <algorithm>

namespace millrace {

int64_t StableLoad::sum_at(int64_t at) const {
  int64_t sum = 0;
  for (const Stream& stream : streams_)
    if (stream.start <= at && at <= stream.end()) sum += stream.length + at - stream.start;
  return sum;
}

bool StableLoad::fits(int64_t start, int64_t length, int64_t steps) const {
  const int64_t end = start + steps;
  if (sum_at(end) + length + steps > limit_) return false;
  return std::ranges::all_of(streams_, [&](const Stream& other) {
    const int64_t at = other.end();
    return at < start || at > end || sum_at(at) + length + at - start <= limit_;
  });
}

// A later start lowers the sum at an end by one token a step. So the next start that can fit is as many steps later as
// the largest sum has tokens too many, or behind the end that leaves no room for the stream's first tokens.
int64_t StableLoad::first_start(int64_t length, int64_t steps) const {
  int64_t last = -1;
  for (const Stream& stream : streams_) last = std::max(last, stream.end());
  int64_t start = 0;
  while (start <= last && !fits(start, length, steps)) {
    int64_t next = start + 1;
    for (const Stream& other : streams_) {
      const int64_t at = other.end();
      if (at < start || at > start + steps) continue;
      const int64_t excess = sum_at(at) + length + at - start - limit_;
      next = std::max(next, std::min(start + excess, at + 1));
    }
    start = next;
  }
  return std::min(start, last + 1);
}

}  // namespace millrace
