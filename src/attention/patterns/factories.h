// The factories of the attention patterns, one file each in this folder; attention/builtin.cc lists them.
#pragma once

#include "attention/pattern.h"

namespace millrace {

Result<std::unique_ptr<AttentionPattern>> make_all_blocks(const OptionValues& options);
Result<std::unique_ptr<AttentionPattern>> make_sparse_transformer(const OptionValues& options);
Result<std::unique_ptr<AttentionPattern>> make_longformer(const OptionValues& options);
Result<std::unique_ptr<AttentionPattern>> make_bigbird(const OptionValues& options);
Result<std::unique_ptr<AttentionPattern>> make_sink_window(const OptionValues& options);
Result<std::unique_ptr<AttentionPattern>> make_semsa(const OptionValues& options);
Result<std::unique_ptr<AttentionPattern>> make_structured_sparse(const OptionValues& options);
Result<std::unique_ptr<AttentionPattern>> make_diffuser(const OptionValues& options);
Result<std::unique_ptr<AttentionPattern>> make_quest(const OptionValues& options);
Result<std::unique_ptr<AttentionPattern>> make_impress(const OptionValues& options);
Result<std::unique_ptr<AttentionPattern>> make_h2o_blocks(const OptionValues& options);
Result<std::unique_ptr<AttentionPattern>> make_minference(const OptionValues& options);
Result<std::unique_ptr<AttentionPattern>> make_reformer(const OptionValues& options);
Result<std::unique_ptr<AttentionPattern>> make_routing_transformer(const OptionValues& options);
Result<std::unique_ptr<AttentionPattern>> make_sparse_flash_attention(const OptionValues& options);
Result<std::unique_ptr<AttentionPattern>> make_sinkhorn(const OptionValues& options);

}  // namespace millrace
