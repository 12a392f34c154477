#include "run/window_blocks.h"

#include <algorithm>

#include "attention/pattern_layers.h"
#include "kv/window_groups.h"
#include "run/draft_models/loader.h"

namespace millrace {

// A recurrent state has all layers in one slot; a virtual pool has one range of addresses for each stream; a store
// keeps blocks of all layers; the parts of a context are seen from anywhere; a draft model uses the blocks of the first
// group.
void split_window_blocks(KvLayout& layout, const EnginePlan& plan, int64_t context, int64_t step) {
  const DraftModelLoader* draft = draft_model_loader(plan.drafter.get());
  const bool whole = plan.options.keep_window_keys || (draft && draft->second) || layout.recurrent() ||
                     plan.pool != KvPoolMode::paged || plan.store || plan.documents;
  const bool evicts = plan.evictor != nullptr;
  if (!whole && !evicts) split_windows(layout, context, step);
  if (!evicts) return;
  split_all_windows(layout, context, step);
  if (!whole) return;
  for (KvLayout& group : layout.windows) {
    group.window = 0;
    group.most_held = context;
  }
}

Result<void> divide_by_budgets(KvLayout& layout, const EvictionRule* rule) {
  layout.by_layer = rule && rule->by_layer();
  return rule && rule->by_head() ? layout.use_per_head_tables() : Result<void>();
}

Result<KvLayout> engine_layout(const EnginePlan& plan, std::vector<KvLayer> layers, int64_t context) {
  const EngineOptions& options = plan.options;
  const int64_t drafts = plan.longest_draft();
  KvLayout layout = plan.formats.layout(options.block_tokens, std::move(layers), drafts);
  MILLRACE_TRY_VOID(add_pattern_layers(layout, plan.switches.attention.pattern, context));
  MILLRACE_TRY_VOID(divide_by_budgets(layout, plan.evictor.get()));
  if (!layout.by_layer)
    split_window_blocks(layout, plan, context, std::max(options.batch_tokens, options.max_streams) + drafts);
  MILLRACE_TRY_VOID(plan.formats.set_window_formats(layout, drafts));
  return layout;
}

int64_t longest_demand(const EvictionRule* rule, const KvLayout& layout, int64_t context) {
  if (layout.by_layer) {
    const int64_t blocks = blocks_demand(rule, context, context, layout.tables(), layout.block_tokens);
    return (blocks + layout.tables() - 1) / layout.tables() * layout.block_tokens;
  }
  const int64_t demand = kv_demand(rule, context, context);
  return layout.window > 0 ? std::min(demand, layout.most_held) : demand;
}

}  // namespace millrace
