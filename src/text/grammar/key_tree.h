// KeyTree: what may come next in a list whose members begin with keys and stand in a fixed order, some of them left
// out. An automaton over the keys' bytes. A state is what has been read of a key, and the first member that it can
// still be:
//
//   keys  0 "name":   1 "no":   2 "id":        behind member 0, where only 1 and 2 may come:
//
//   place 0: {"} --n--> {n, from 0} --a--> ... "name":      place 1: {"} --n--> {n, from 1} --o--> ... "no":
//                                   --o--> {no, from 1}               --i--> {i, from 2}  --d--> ... "id":
//
// So its size is the length of all keys together, not that times the number of places.
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
  int32_t states = 0;  // 0 to n - 1 are those before a key: state i where member i is the first that may come
  std::vector<Edge> edges;
  std::vector<int32_t> ends;  // [member]: the state behind its key
};

// `counts`: '1' for a member that must come, '?' for one that need not. No key is the begin of another.
// Errors: those of the budget; internal.
Result<KeyTree> make_key_tree(std::span<const std::string> keys, std::string_view counts, CompileBudget* budget);

}  // namespace millrace
