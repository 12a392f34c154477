// What engines and simulations say alike of a KV cache in which the parts of a prompt cannot be computed apart.
#pragma once

#include <fmt/format.h>

#include <string>

#include "base/result.h"

namespace millrace {

inline Error context_needs_rows(const std::string& codec) {
  return Error::unsupported(
      fmt::format("context: KV format {} encodes whole blocks, and keys that move need their rows; use f16 or another "
                  "format of rows",
                  codec));
}

}  // namespace millrace
