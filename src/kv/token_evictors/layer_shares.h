// Budgets in proportion to shares, one a layer, as `millrace budget-search` measures them (evaluate/budget_search.h).
// As an option they are a list, 62.80.158: one text says everything, in a request, too, where no file is read.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

inline constexpr int64_t kMostShare = 1'000'000;

// Errors: user.
Result<std::vector<int64_t>> read_layer_shares(std::string_view list);

// Budgets of `average` tokens on average, whose sum is exact. Every layer has `least`, or the average if that is less;
// what is above it is divided in proportion to the shares, rounded down, and what that leaves goes to the layers whose
// fractions are largest, a token each.
std::vector<int64_t> budgets_by_share(const std::vector<int64_t>& shares, int64_t average, int64_t least);

}  // namespace millrace
