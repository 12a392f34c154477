// Options of all sources that read from the disk: their memory, and rules that say which tensors stay in memory.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/options.h"
#include "models/weight_units/unit_store.h"

namespace millrace {

// The bytes that weights may have: the option `memory` ("": no limit of its own), and `limit`. Errors: user.
Result<int64_t> memory_option(const OptionValues& options, int64_t limit);

// Applies the option `place`: rules PATTERN=memory or PATTERN=disk, with ';' between; of the rules that match a
// tensor's name the last one counts. A pattern is a shell pattern as of fnmatch(), such as "blk.0.*", or `experts`, all
// routed experts. Tensors in memory move to places.others. Errors: user.
Result<void> apply_place_rules(const OptionValues& options, WeightPlaces& places);

// Options of the store: depth, timeout, lock.
UnitStore::Options store_options(const OptionValues& options);

}  // namespace millrace
