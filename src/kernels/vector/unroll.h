// Loops whose index is a constant to the compiler. Everything is in an unnamed namespace, because each file is compiled
// for another instruction set.
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

// Variant for an f that needs no constant. Its code is compiled once and then repeated, so a kernel with many such
// loops compiles in half of the time. Only for GCC on x86, because on Arm GCC 12 then keeps some of the sums in memory.
template <int n, typename F>
[[gnu::always_inline]] inline void repeat(F&& f) {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC unroll 32
  for (int i = 0; i < n; ++i) f(i);
#else
  unroll<n>(f);
#endif
}

// unroll() if f needs a constant, else repeat().
template <bool kConstant, int n, typename F>
[[gnu::always_inline]] inline void steps(F&& f) {
  if constexpr (kConstant) {
    unroll<n>(f);
  } else {
    repeat<n>(f);
  }
}

}  // namespace
}  // namespace millrace
