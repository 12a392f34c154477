// The factories of the attention patterns, one file each in this folder; attention/builtin.cc lists them.
#pragma once

#include "attention/pattern.h"

namespace millrace {

Result<std::unique_ptr<AttentionPattern>> make_all_blocks(const OptionValues& options);
Result<std::unique_ptr<AttentionPattern>> make_sparse_transformer(const OptionValues& options);
Result<std::unique_ptr<AttentionPattern>> make_longformer(const OptionValues& options);
Result<std::unique_ptr<AttentionPattern>> make_bigbird(const OptionValues& options);
Result<std::unique_ptr<AttentionPattern>> make_sink_window(const OptionValues& options);

}  // namespace millrace
