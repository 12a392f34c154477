// Budgets in proportion to shares, one for each layer or one for each KV head, as `millrace budget-search` measures
// them (evaluate/budget_search.h). As an option they are a list, 62.80.158: one text says everything, in a request,
// too, where no file is read.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kv/token_evictor.h"

namespace millrace {

inline constexpr int64_t kMostShare = 1'000'000;

// At most `most` shares, each of a `unit`. Errors: user.
Result<std::vector<int64_t>> read_shares(std::string_view list, std::string_view unit, int64_t most);

// Budgets of `average` tokens on average, whose sum is exact. Every share has `least`, or the average if that is less;
// what is above it is divided in proportion to the shares, rounded down, and what that leaves goes to those whose
// fractions are largest, a token each.
std::vector<int64_t> budgets_by_share(const std::vector<int64_t>& shares, int64_t average, int64_t least);

// The evictor `one`, named `name`, where one of the options `layers` and `heads` is given: each layer, or each KV head
// of each, has a budget of its own, and chooses for itself as it would with one budget. Without them it is `one`.
// `least`: tokens that it cannot drop. Errors: user.
Result<std::unique_ptr<const TokenEvictor>> with_shares(std::string_view name, const OptionValues& options,
                                                        std::unique_ptr<const TokenEvictor> one, int64_t least);

}  // namespace millrace
