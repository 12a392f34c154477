// The option `recent` of evictors that keep the newest tokens regardless of their worth. It means the same in all of
// them: a number of tokens (32), or a share of the budget (50% or 0.5).
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "kv/token_evictor.h"

namespace millrace {

// Returns the number of tokens that `options.text("recent")` asks for; a share of `budget` is rounded down.
// `was_share`: earlier versions of this evictor read only shares, so that 1 was all of the budget; it is then refused.
// Errors: user.
Result<int64_t> read_recent(std::string_view evictor, const OptionValues& options, int64_t budget,
                            bool was_share = false);

// The option itself. `of`: what a share is a share of.
OptionSpec recent_option(const char* standard, const char* of = "the budget");

}  // namespace millrace
