// Builds the suffix array of a text of tokens in linear time by induced sorting (Nong, Zhang and Chan, 2009, "Linear
// Suffix Array Construction by Almost Pure Induced-Sorting").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace millrace {

// Returns the start positions of the text's suffixes in ascending order of the suffixes; a suffix precedes longer ones
// that begin with it. `text`: at most INT32_MAX values in [0, letters). Memory: suffix_array_bytes().
std::vector<int32_t> suffix_array(std::span<const int32_t> text, int32_t letters);

// Returns the peak memory of suffix_array(), with the result and without the text.
inline int64_t suffix_array_bytes(int64_t tokens, int64_t letters) { return 16 * tokens + 16 * letters; }

}  // namespace millrace
