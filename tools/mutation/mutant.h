// Called by rewritten sources (tools/mutate): every mutant is compiled in, and MILLRACE_MUTANT selects the active one.
// In constant expressions, none is active. With MILLRACE_MUTANT=record, none is active and each records that it was
// reached.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <type_traits>

namespace mutant {

inline constexpr int kMaxMutants = 1 << 16;
inline unsigned char reached[kMaxMutants];
inline int alive = 0;  // an id; 0: none; -1: record

inline bool note(int id) {
  reached[id] = 1;
  return false;
}

constexpr bool on(int id) {
  if (std::is_constant_evaluated()) return false;
  return alive == id || (alive < 0 && note(id));
}

// A comparison and its neighbour.
#define MUTANT_COMPARISON(name, is, becomes)            \
  template <typename A, typename B>                     \
  constexpr bool name(int id, const A& a, const B& b) { \
    return on(id) ? bool(a becomes b) : bool(a is b);   \
  }
MUTANT_COMPARISON(lt, <, <=)
MUTANT_COMPARISON(le, <=, <)
MUTANT_COMPARISON(gt, >, >=)
MUTANT_COMPARISON(ge, >=, >)
MUTANT_COMPARISON(eq, ==, !=)
MUTANT_COMPARISON(ne, !=, ==)
#undef MUTANT_COMPARISON

template <typename T>
constexpr T step(int id, T value, T other) {
  return on(id) ? other : value;
}

template <typename T>
constexpr std::decay_t<T> answer(int id, T&& value) {
  if constexpr (std::is_same_v<std::decay_t<T>, bool>)
    return value != on(id);
  else
    return on(id) ? static_cast<std::decay_t<T>>(value + 1) : value;
}

template <typename T>
constexpr T lesser(int id, const T& a, const T& b) {
  return on(id) ? std::max(a, b) : std::min(a, b);
}
template <typename T>
constexpr T lesser(int id, std::initializer_list<T> all) {
  return on(id) ? std::max(all) : std::min(all);
}
template <typename T>
constexpr T greater(int id, const T& a, const T& b) {
  return on(id) ? std::min(a, b) : std::max(a, b);
}
template <typename T>
constexpr T greater(int id, std::initializer_list<T> all) {
  return on(id) ? std::min(all) : std::max(all);
}

}  // namespace mutant
