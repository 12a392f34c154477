// The members of models/arch/; each is defined in the file of the same name.
#pragma once

#include "models/arch.h"

namespace millrace {

extern const Arch kLlama, kMistral, kMixtral, kQwen2, kQwen3, kQwen2Moe, kQwen3Moe, kGemma, kGemma2, kGemma3, kPhi3,
    kGpt2, kOlmo2, kSmolLm3, kInternLm2, kGptOss, kMamba, kDeepseek2, kDeepseek3, kFalconH1, kQwen3Next, kQwen35,
    kQwen35Moe, kGemma3n, kGemma4, kBert, kRoberta, kModernBert, kNomicBert, kJinaBert2, kEuroBert, kGemmaEmbedding,
    kNomicBertMoe, kJinaBert3;

}  // namespace millrace
