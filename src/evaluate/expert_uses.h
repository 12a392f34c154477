// Counts how often each expert of a mixture runs while the model reads a text.
#pragma once

#include <memory>
#include <span>

#include "evaluate/scorer.h"
#include "offload/expert_profile.h"

namespace millrace {

struct ExpertUsesOptions {
  int threads = 0;        // 0: all cores
  int64_t context = 512;  // tokens of each window of the text
};

// Reads whole windows of the text; the remaining tokens are left out. Errors: unsupported (no mixture of experts), user
// (less than one window), those of Scorer.
Result<ExpertProfile> count_expert_uses(const std::shared_ptr<const LanguageModel>& model,
                                        std::span<const TokenId> tokens, const ExpertUsesOptions& options);

}  // namespace millrace
