// Texts that grow: what a text costs is counted in units of work, at n, 2n and 4n bytes.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace millrace::fuzzing {

// `work(times)`: the units that `times` copies of a text take, `bytes` each. Ends the process if they grow faster than
// n log n, and are more than `most_each` for a byte.
template <typename Work>
void expect_near_linear(const char* what, int64_t times, int64_t bytes, int64_t most_each, Work work) {
  const int64_t one = work(times), two = work(2 * times), four = work(4 * times);
  constexpr int64_t kSlack = 1 << 16;  // tables and buffers that are made once
  const bool grows = two > 3 * one + kSlack && four > 3 * two + kSlack;
  if (!grows || four <= most_each * 4 * times * bytes) return;
  std::fprintf(stderr, "%s: %lld, %lld and %lld units for %lld, %lld and %lld bytes\n", what,
               static_cast<long long>(one), static_cast<long long>(two), static_cast<long long>(four),
               static_cast<long long>(times * bytes), static_cast<long long>(2 * times * bytes),
               static_cast<long long>(4 * times * bytes));
  std::abort();
}

}  // namespace millrace::fuzzing
