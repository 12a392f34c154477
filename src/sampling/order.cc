#include "sampling/order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>

namespace millrace {
namespace {

constexpr int kDigitBits = 11;
constexpr uint32_t kDigits = 1u << kDigitBits;

// Ascends as logits descend. Adding 0 makes -0 equal to 0.
uint32_t descending_key(float logit) {
  const auto bits = std::bit_cast<uint32_t>(logit + 0.0f);
  return bits >> 31 ? bits : ~(bits | 0x80000000u);
}

}  // namespace

void radix_sort(std::span<Candidate> list, std::span<Candidate> spare) {
  std::array<std::array<uint32_t, kDigits>, 3> counts{};
  for (const Candidate& candidate : list) {
    const uint32_t key = descending_key(candidate.logit);
    ++counts[0][key % kDigits];
    ++counts[1][(key >> kDigitBits) % kDigits];
    ++counts[2][key >> (2 * kDigitBits)];
  }
  Candidate *from = list.data(), *to = spare.data();
  for (int digit = 0; digit < 3; ++digit) {
    auto& starts = counts[static_cast<size_t>(digit)];
    uint32_t start = 0;
    for (uint32_t& count : starts) start += std::exchange(count, start);
    const int shift = digit * kDigitBits;
    for (size_t i = 0; i < list.size(); ++i) to[starts[(descending_key(from[i].logit) >> shift) % kDigits]++] = from[i];
    std::swap(from, to);
  }
  std::copy_n(from, list.size(), list.data());  // three passes end in `spare`
  for (size_t i = 1; i < list.size(); ++i) {
    if (!better(list[i], list[i - 1])) continue;  // the sort keeps the order of equal logits
    const float logit = list[i].logit;
    size_t first = i - 1, end = i + 1;
    while (first > 0 && list[first - 1].logit == logit) --first;
    while (end < list.size() && list[end].logit == logit) ++end;
    std::sort(list.begin() + static_cast<ptrdiff_t>(first), list.begin() + static_cast<ptrdiff_t>(end), better);
    i = end;
  }
}

}  // namespace millrace
