// What engines and simulations say alike of a KV cache beside which no rows of documents are kept.
#pragma once

#include <fmt/format.h>

#include <string>

#include "base/result.h"

namespace millrace {

inline Error context_needs_rows(const std::string& codec) {
  return Error::unsupported(fmt::format(
      "context: KV format {} encodes whole blocks, beside which documents are kept as rows; start the engine with a "
      "context (--use context=NAME), which takes memory for them, or use f16 or another format of rows",
      codec));
}

}  // namespace millrace
