// The factories of the KV codecs, one file each in this folder; builtin.cc lists them.
#pragma once

#include "kv/codec.h"

namespace millrace {

}  // namespace millrace
