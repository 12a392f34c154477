#include "run/window_blocks.h"

#include <algorithm>

#include "attention/pattern_layers.h"
#include "kv/window_groups.h"
#include "models/forward_switches.h"
#include "run/kv_places.h"
#include "speculate/drafter.h"

namespace millrace {

// A recurrent state has all layers in one slot; a virtual pool has one range of addresses for each stream; a store
// keeps blocks of all layers; the parts of a context are seen from anywhere; a draft model uses the blocks of the first
// group.
void split_window_blocks(KvLayout& layout, const EngineOptions& options, int64_t context, int64_t step) {
  const auto draft = drafter_model(options.drafter);
  const bool whole = options.keep_window_keys || (draft.ok() && *draft) || layout.recurrent() ||
                     options.kv_pool != "paged" || has_store(options) ||
                     (!options.document_context.empty() && options.document_context != "none");
  const bool evicts = !options.evictor.empty() && options.evictor != "none";
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
  if (!rule || !rule->by_layer()) return {};
  if (rule->by_head()) return layout.use_per_head_tables();
  layout.use_layer_tables();
  return {};
}

Result<KvLayout> engine_layout(const KvFormats& formats, const EngineOptions& options, std::vector<KvLayer> layers,
                               int64_t context) {
  MILLRACE_TRY(const int64_t drafts, longest_draft(options.drafter));
  KvLayout layout = formats.layout(options.block_tokens, std::move(layers), drafts);
  MILLRACE_TRY(const ForwardSwitches switches, make_forward_switches(options.kernels));
  MILLRACE_TRY_VOID(add_pattern_layers(layout, switches.attention.pattern, context));
  MILLRACE_TRY(const auto rule, make_eviction_rule(options.evictor));
  MILLRACE_TRY_VOID(divide_by_budgets(layout, rule.get()));
  if (!layout.divided())
    split_window_blocks(layout, options, context, std::max(options.batch_tokens, options.max_streams) + drafts);
  MILLRACE_TRY_VOID(formats.set_window_formats(layout, drafts));
  return layout;
}

int64_t longest_demand(const EvictionRule* rule, const KvLayout& layout, int64_t context) {
  if (layout.divided()) {
    const int64_t blocks = blocks_demand(rule, context, context, layout.tables(), layout.block_tokens);
    return (blocks + layout.tables() - 1) / layout.tables() * layout.block_tokens;
  }
  const int64_t demand = kv_demand(rule, context, context);
  return layout.window > 0 ? std::min(demand, layout.most_held) : demand;
}

}  // namespace millrace
