// lock_memory(): keeps pages in memory until they are unmapped, so that the system does not page them out.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"

namespace millrace {

// Errors: resource (the process may not lock this many bytes).
Result<void> lock_memory(std::span<const uint8_t> memory);

}  // namespace millrace
