// The factories of the built-in steps, each defined in its own file. A factory returns null if the options make its
// step a no-op.
#pragma once

#include <memory>

#include "sampling/step.h"

namespace millrace {

std::unique_ptr<SamplerStep> make_penalties(const SamplerSetup& setup);
std::unique_ptr<SamplerStep> make_dry(const SamplerSetup& setup);
std::unique_ptr<SamplerStep> make_logit_bias(const SamplerSetup& setup);
std::unique_ptr<SamplerStep> make_banned_tokens(const SamplerSetup& setup);
std::unique_ptr<SamplerStep> make_bad_words(const SamplerSetup& setup);
std::unique_ptr<SamplerStep> make_end_of_generation(const SamplerSetup& setup);
std::unique_ptr<SamplerStep> make_allowed_tokens(const SamplerSetup& setup);
std::unique_ptr<SamplerStep> make_thinking_budget(const SamplerSetup& setup);
std::unique_ptr<SamplerStep> make_constraint(const SamplerSetup& setup);
std::unique_ptr<SamplerStep> make_greedy(const SamplerSetup& setup);
std::unique_ptr<SamplerStep> make_top_n_sigma(const SamplerSetup& setup);
std::unique_ptr<SamplerStep> make_top_k(const SamplerSetup& setup);
std::unique_ptr<SamplerStep> make_typical_p(const SamplerSetup& setup);
std::unique_ptr<SamplerStep> make_top_p(const SamplerSetup& setup);
std::unique_ptr<SamplerStep> make_min_p(const SamplerSetup& setup);
std::unique_ptr<SamplerStep> make_xtc(const SamplerSetup& setup);
std::unique_ptr<SamplerStep> make_temperature(const SamplerSetup& setup);
std::unique_ptr<SamplerStep> make_dynamic_temperature(const SamplerSetup& setup);
std::unique_ptr<SamplerStep> make_mirostat(const SamplerSetup& setup);

}  // namespace millrace
