// Budgets in proportion to shares, one share for each layer or for each KV head, as `millrace budget-search` measures
// them (evaluate/budget_search.h). The option is a list such as 62.80.158, so that a request, which reads no file, can
// contain it.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kv/token_evictor.h"

namespace millrace {

inline constexpr int64_t kMaxShare = 1'000'000;

// At most `most` shares, each of a `unit`. Errors: user.
Result<std::vector<int64_t>> read_shares(std::string_view list, std::string_view unit, int64_t most);

// Returns budgets whose average is exactly `average` tokens. Each budget is at least `least`, or the average if that is
// less. The tokens above it are divided in proportion to the shares and rounded down; the tokens that this leaves are
// assigned to the largest fractions, one each.
std::vector<int64_t> budgets_by_share(const std::vector<int64_t>& shares, int64_t average, int64_t least);

// Returns the evictor `one`, named `name`, with a separate budget for each layer or each KV head, if `options` has
// `layers` or `heads`. Each then chooses for itself as it would with one budget. Without these options, returns `one`.
// `least`: number of tokens that it cannot drop. Errors: user.
Result<std::unique_ptr<const TokenEvictor>> with_shares(std::string_view name, const OptionValues& options,
                                                        std::unique_ptr<const TokenEvictor> one, int64_t least);

}  // namespace millrace
