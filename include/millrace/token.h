// Token ids, as every part of the API counts them.
#pragma once

#include <cstdint>

namespace millrace {

using TokenId = int32_t;

}  // namespace millrace
