// The products of adapters, added to those of the model's own matrices.
#pragma once

#include "models/forward_context.h"

namespace millrace {

// y [tokens, weight.rows] += scale * B (A x) for the rows of context.lora that use adapters of `weight`; x [tokens,
// weight.cols].
void add_lora(ForwardContext& context, const Weight& weight, const float* x, float* y);

}  // namespace millrace
