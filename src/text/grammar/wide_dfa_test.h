// An automaton whose table cannot be compressed, for tests of the bytes that tables are charged.
#pragma once

#include "text/grammar/dfa.h"

namespace millrace::testing {

// Returns an automaton in which each byte leads from state s to s + byte + shift, modulo `states`. All states accept.
inline Dfa wide_dfa(int32_t states, int32_t shift) {
  Dfa wide;
  wide.classes = 256;
  wide.accepting.assign(static_cast<size_t>(states), 1);
  wide.ticks.assign(static_cast<size_t>(states), 0);
  wide.calls.resize(static_cast<size_t>(states));
  for (size_t byte = 0; byte < 256; ++byte) wide.class_of[byte] = static_cast<uint8_t>(byte);
  for (int32_t s = 0; s < states; ++s)
    for (int32_t byte = 0; byte < 256; ++byte) wide.next.push_back((s + byte + shift) % states);
  return wide;
}

}  // namespace millrace::testing
