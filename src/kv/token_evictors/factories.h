// The factories of the token evictors, one file each in this folder; builtin.cc lists them.
#pragma once

#include "kv/token_evictor.h"

namespace millrace {

Result<std::unique_ptr<const TokenEvictor>> make_streamingllm(const OptionValues& options);
Result<std::unique_ptr<const TokenEvictor>> make_h2o(const OptionValues& options);
Result<std::unique_ptr<const TokenEvictor>> make_window(const OptionValues& options);
Result<std::unique_ptr<const TokenEvictor>> make_random(const OptionValues& options);
Result<std::unique_ptr<const TokenEvictor>> make_tova(const OptionValues& options);
Result<std::unique_ptr<const TokenEvictor>> make_snapkv(const OptionValues& options);
Result<std::unique_ptr<const TokenEvictor>> make_scissorhands(const OptionValues& options);
Result<std::unique_ptr<const TokenEvictor>> make_pyramidkv(const OptionValues& options);
Result<std::unique_ptr<const TokenEvictor>> make_spatten(const OptionValues& options);
Result<std::unique_ptr<const TokenEvictor>> make_adaptively_sparse(const OptionValues& options);
Result<std::unique_ptr<const TokenEvictor>> make_key_norm(const OptionValues& options);
Result<std::unique_ptr<const TokenEvictor>> make_seqboat(const OptionValues& options);

}  // namespace millrace
