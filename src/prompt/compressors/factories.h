// The factories of the built-in prompt compressors.
#pragma once

#include "prompt/compressor.h"

namespace millrace {

Result<std::unique_ptr<PromptCompressor>> make_random_units(const OptionValues& options);
Result<std::unique_ptr<PromptCompressor>> make_truncate(const OptionValues& options);
Result<std::unique_ptr<PromptCompressor>> make_selective_context(const OptionValues& options);
Result<std::unique_ptr<PromptCompressor>> make_llmlingua(const OptionValues& options);
Result<std::unique_ptr<PromptCompressor>> make_longllmlingua(const OptionValues& options);
Result<std::unique_ptr<PromptCompressor>> make_recomp_extractive(const OptionValues& options);
Result<std::unique_ptr<PromptCompressor>> make_recomp_abstractive(const OptionValues& options);
Result<std::unique_ptr<PromptCompressor>> make_dynaicl(const OptionValues& options);
Result<std::unique_ptr<PromptCompressor>> make_semantic_compression(const OptionValues& options);
Result<std::unique_ptr<PromptCompressor>> make_cot_influx(const OptionValues& options);
Result<std::unique_ptr<PromptCompressor>> make_stdc(const OptionValues& options);
Result<std::unique_ptr<PromptCompressor>> make_pcrl(const OptionValues& options);

}  // namespace millrace
