// explores(): while most guesses are wrong, some are still made, to notice when they no longer are.
#pragma once

#include <cstdint>

namespace millrace {

// Returns true if the guess number `asked` is made in any case: about one guess in 16. In a model with any number of
// layers, every layer is reached: multiples of the golden ratio (Knuth, TAOCP 3, section 6.4) favour no period.
constexpr bool explores(uint64_t asked) { return ((asked * 0x9E3779B97F4A7C15u) >> 60) == 0; }

}  // namespace millrace
