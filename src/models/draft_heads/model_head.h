// Heads behind a layer that drafts: logits of some rows of context.residual [tokens, width], to context.logits [rows,
// vocab].
#pragma once

#include <span>

#include "models/forward_context.h"
#include "models/model.h"

namespace millrace {

// `norm`: without a scale it leaves the rows as they are.
void draft_head(const ArchSpec& spec, const NormWeights& norm, const Weight& head, std::span<const int32_t> rows,
                ForwardContext& context);
// Computes logits with the head of the model that is drafted for, and with its changes to logits.
void model_head(const Model& target, const ArchSpec& spec, const NormWeights& norm, std::span<const int32_t> rows,
                ForwardContext& context);

}  // namespace millrace
