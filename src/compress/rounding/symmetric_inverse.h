// Computes the inverse of a positive definite matrix. Pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"

namespace millrace {

// Inverts `matrix` [n, n] in place. Returns false if it is not positive definite. Every element has a fixed order of
// operations.
bool invert_symmetric(std::vector<double>& matrix, int64_t n, ThreadPool& pool);

}  // namespace millrace
