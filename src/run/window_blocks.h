// The layout of an engine's KV pool, and which engines give back the blocks before the windows of a model's layers
// (kv/window_groups.h). Pure.
#pragma once

#include "run/engine_plan.h"

namespace millrace {

// Splits the layout for streams of at most `context` tokens that run at most `step` tokens at once, unless the plan
// needs all blocks. With an evictor every layer with a window has blocks of its own, which a stream may have to keep.
void split_window_blocks(KvLayout& layout, const EnginePlan& plan, int64_t context, int64_t step);

// Where budgets differ by layer or by head, every one of these has blocks of its own. `rule`: null is none. Errors:
// unsupported.
Result<void> divide_by_budgets(KvLayout& layout, const EvictionRule* rule);

// Of an engine for streams of at most `context` tokens, with the `layers` of its model; a draft model's are added to
// them. With an evictor whose budgets differ by layer, every layer has blocks of its own. Errors: those of
// set_window_formats(), add_pattern_layers(), divide_by_budgets().
Result<KvLayout> engine_layout(const EnginePlan& plan, std::vector<KvLayer> layers, int64_t context);

// Tokens of the pool that the longest stream needs. Where every layer has blocks of its own, the pool has that many in
// each layer on average.
int64_t longest_demand(const EvictionRule* rule, const KvLayout& layout, int64_t context);

}  // namespace millrace
