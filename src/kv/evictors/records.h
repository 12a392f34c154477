// The prefix evictors; included only by builtin.cc.
#pragma once

#include "kv/prefix_evictor.h"

namespace millrace {

extern const PrefixEvictor kLru, kLfu, kLengthAware, kImportance;

}  // namespace millrace
