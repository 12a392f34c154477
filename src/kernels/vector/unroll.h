// Loops whose index is a constant to the compiler. In an unnamed namespace: each file is compiled for its own
// instruction set.
#pragma once

#include <type_traits>
#include <utility>

namespace millrace {
namespace {

// Calls f(integral_constant 0) ... f(integral_constant n - 1).
template <int n, typename F>
[[gnu::always_inline]] inline void unroll(F&& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (f(std::integral_constant<int, i>{}), ...);
  }
  (std::make_integer_sequence<int, n>{});
}

}  // namespace
}  // namespace millrace
