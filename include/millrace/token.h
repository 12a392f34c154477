// TokenId: an index in a model's vocabulary.
#pragma once

#include <cstdint>

namespace millrace {

using TokenId = int32_t;

}  // namespace millrace
