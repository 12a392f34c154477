// The prefix evictors, for builtin.cc alone.
#pragma once

#include "kv/prefix_evictor.h"

namespace millrace {

extern const PrefixEvictor kLru, kLfu, kLengthAware, kImportance;

}  // namespace millrace
