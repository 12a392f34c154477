#include "exactness/smallest_set.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace millrace {
namespace {

using Set = std::vector<size_t>;

// Returns part `at` of `parts`, or everything else if `rest` is true.
Set part_of(const Set& set, size_t parts, size_t at, bool rest) {
  const size_t begin = set.size() * at / parts, end = set.size() * (at + 1) / parts;
  Set out;
  for (size_t i = 0; i < set.size(); ++i)
    if ((i >= begin && i < end) != rest) out.push_back(set[i]);
  return out;
}

}  // namespace

std::vector<size_t> smallest_set(size_t size, size_t max_tests, const std::function<bool(const Set&)>& has) {
  Set set(size);
  std::iota(set.begin(), set.end(), size_t{0});
  size_t tests = 0, parts = 2;
  const auto smaller = [&](bool rest) -> std::optional<Set> {
    for (size_t at = 0; at < parts && tests < max_tests; ++at) {
      Set part = part_of(set, parts, at, rest);
      ++tests;
      if (has(part)) return part;
    }
    return std::nullopt;
  };
  while (set.size() > 1 && tests < max_tests) {
    parts = std::min(parts, set.size());
    if (auto part = smaller(false)) {
      set = std::move(*part);
      parts = 2;
    } else if (auto rest = parts > 2 ? smaller(true) : std::nullopt) {
      set = std::move(*rest);
      parts = std::max<size_t>(2, parts - 1);
    } else if (parts == set.size()) {
      break;
    } else {
      parts *= 2;
    }
  }
  return set;
}

}  // namespace millrace
