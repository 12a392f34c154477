// Reports of the prompt compressors' effects, for `run` and the server.
#pragma once

#include <span>
#include <vector>

#include "base/ordered_json.h"
#include "prompt/pipeline.h"

namespace millrace {

// Adds to `sum` the effects of the same compressors on another prompt.
void add_effects(std::vector<PromptEffect>& sum, std::span<const PromptEffect> more);

// Returns an array with one object for each compressor: family, name, options (all, with their values), effect (one
// line), tokens_before, tokens_after, seconds.
nlohmann::ordered_json applied_prompts(std::span<const PromptEffect> effects);

// Returns a report of all compressors together: name, tokens_before, tokens_after, ratio, seconds, passes.
nlohmann::ordered_json prompt_json(std::span<const PromptEffect> effects);

}  // namespace millrace
