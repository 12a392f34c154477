// The suffix array of a text of tokens, in linear time by induced sorting (Nong, Zhang and Chan, 2009, "Linear Suffix
// Array Construction by Almost Pure Induced-Sorting").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace millrace {

// The starts of the text's suffixes in ascending order; a suffix precedes the longer ones that begin with it.
// `letters` of the text are in [0, letters). At most INT32_MAX of them. Memory: suffix_array_bytes().
std::vector<int32_t> suffix_array(std::span<const int32_t> text, int32_t letters);

// Most memory that it uses at a time, with the result and without the text.
inline int64_t suffix_array_bytes(int64_t tokens, int64_t letters) { return 16 * tokens + 16 * letters; }

}  // namespace millrace
