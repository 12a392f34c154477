// Finds a small subset that still has a property, by halves (delta debugging; Zeller and Hildebrandt, 2002,
// "Simplifying and Isolating Failure-Inducing Input").
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace millrace {

// `has`: returns true if a subset of {0, ..., size - 1} has the property, which the whole set has. It receives
// ascending indices and is called at most `max_tests` times. Returns the smallest subset found: without any one of its
// members, the property was not seen, unless the tests ran out.
std::vector<size_t> smallest_set(size_t size, size_t max_tests,
                                 const std::function<bool(const std::vector<size_t>&)>& has);

}  // namespace millrace
