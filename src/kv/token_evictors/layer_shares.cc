#include "kv/token_evictors/layer_shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

namespace millrace {
namespace {

constexpr int64_t kMostLayers = 1024;  // so that no product below overflows

}  // namespace

Result<std::vector<int64_t>> read_layer_shares(std::string_view list) {
  std::vector<int64_t> shares;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find('.', begin), list.size());
    const std::string_view one = list.substr(begin, end - begin);
    int64_t share = 0;
    const auto [stop, error] = std::from_chars(one.data(), one.data() + one.size(), share);
    if (error != std::errc() || stop != one.data() + one.size() || share < 1 || share > kMostShare)
      return Error::user(fmt::format(
          "must be a whole number from 1 to {} for each layer, with dots between them, got '{}'", kMostShare, one));
    shares.push_back(share);
    begin = end + 1;
  }
  if (std::ssize(shares) > kMostLayers)
    return Error::user(fmt::format("must be of at most {} layers, got {}", kMostLayers, shares.size()));
  return shares;
}

std::vector<int64_t> budgets_by_share(const std::vector<int64_t>& shares, int64_t average, int64_t least) {
  least = std::min(least, average);
  const int64_t above = (average - least) * std::ssize(shares);
  const int64_t all = std::accumulate(shares.begin(), shares.end(), int64_t{0});
  std::vector<int64_t> budgets, order(shares.size());
  int64_t left = above;
  for (const int64_t share : shares) {
    budgets.push_back(least + above * share / all);
    left -= above * share / all;
  }
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto fraction = [&](int64_t layer) { return above * shares[static_cast<size_t>(layer)] % all; };
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return fraction(a) > fraction(b); });
  for (int64_t i = 0; i < left; ++i) ++budgets[static_cast<size_t>(order[static_cast<size_t>(i)])];
  return budgets;
}

}  // namespace millrace
