// The factories of the KV codecs, one file each in this folder; builtin.cc lists them.
#pragma once

#include "kv/codec.h"

namespace millrace {

Result<std::shared_ptr<const KvCodec>> make_atom_kv(const OptionValues& options);
Result<std::shared_ptr<const KvCodec>> make_flexgen_kv(const OptionValues& options);
Result<std::shared_ptr<const KvCodec>> make_kivi(const OptionValues& options);
Result<std::shared_ptr<const KvCodec>> make_kvquant(const OptionValues& options);
Result<std::shared_ptr<const KvCodec>> make_quarot_kv(const OptionValues& options);
Result<std::shared_ptr<const KvCodec>> make_turboquant(const OptionValues& options);

}  // namespace millrace
