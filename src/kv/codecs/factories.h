// The factories of the KV codecs, one file each in this folder; builtin.cc lists them.
#pragma once

#include "kv/codec.h"

namespace millrace {

Result<std::shared_ptr<const KvCodec>> make_kivi(const OptionValues& options);

}  // namespace millrace
