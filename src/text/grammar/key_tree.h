// KeyTree: an automaton over the keys of a list whose members are in a fixed order and partly optional. A state
// consists of the prefix of a key that has been read and the first member that the key may belong to:
//
//   keys  0 "name":   1 "no":   2 "id":        after member 0, where only 1 and 2 may follow:
//
//   place 0: {"} --n--> {n, from 0} --a--> ... "name":      place 1: {"} --n--> {n, from 1} --o--> ... "no":
//                                   --o--> {no, from 1}               --i--> {i, from 2}  --d--> ... "id":
//
// The size of the automaton is proportional to the total length of the keys, for any number of places.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/grammar/compile_budget.h"

namespace millrace {

struct KeyTree {
  struct Edge {
    int32_t from = 0, to = 0;
    uint8_t byte = 0;
  };
  int32_t states = 0;  // states 0 to n - 1 are before a key: in state i, member i is the first allowed member
  std::vector<Edge> edges;
  std::vector<int32_t> ends;  // [member]: the state after its key
};

// `counts`: '1' for a required member, '?' for an optional member. No key may be a prefix of another key.
// Errors: those of the budget; internal.
Result<KeyTree> make_key_tree(std::span<const std::string> keys, std::string_view counts, CompileBudget* budget);

}  // namespace millrace
