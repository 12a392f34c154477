#include "run/evictor_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/pattern_layers.h"
#include "models/mixers/mixer.h"
#include "models/visible.h"
#include "run/kv_places.h"

namespace millrace {
namespace {

constexpr const char* kOwnBlocks =
    "evictor: layers of this model see a window, and need blocks of their own beside it; start the engine with an "
    "evictor (--evictor), then requests may choose another";

bool has_window(const KvLayer& layer, int64_t context) {
  return !layer.elsewhere && layer.window > 0 && layer.window < context;
}

// What does not go with a codec.
Result<void> check_encoded(const EvictionRule& rule, const KvLayout& layout) {
  if (!layout.codec) return {};
  if (rule.evictor->gated())
    return Error::unsupported(
        fmt::format("evictor {}: KV format {} encodes whole blocks, of which no kernel leaves out the single keys that "
                    "gates hide; use f16 or another format of rows",
                    rule.text, layout.format_name()));
  if (layout.codec->before_rope() || layout.codec->sink_tokens() > 0)
    return Error::unsupported(
        fmt::format("evictor: KV format {} rounds keys as they were before RoPE at the positions of their slots, which "
                    "tokens that move no longer have; use another codec, such as kivi or quarot_kv",
                    layout.format_name()));
  if (rule.moves_keys())
    return Error::unsupported(
        fmt::format("evictor: positions=cache: with KV format {} keys would be rounded anew each time that they move; "
                    "use positions=text, or f16 or another format of rows",
                    layout.format_name()));
  return {};
}

}  // namespace

// A layer with a window that shares slots with the others would count them, which are closer to each other than
// positions once tokens between them are gone.
Result<void> check_evictor_layout(const EvictionRule& rule, const KvLayout& layout, int64_t context) {
  if (layout.codec && layout.by_layer)
    return Error::unsupported(
        fmt::format("evictor: budgets by layer: KV format {} encodes whole blocks, and a stream's newest tokens, which "
                    "are not encoded yet, are the same in every layer; use f16 or another format of rows",
                    layout.format_name()));
  MILLRACE_TRY_VOID(check_encoded(rule, layout));
  const bool window =
      std::ranges::any_of(layout.layers, [&](const KvLayer& layer) { return has_window(layer, context); });
  if (layout.by_layer && window)
    return Error::unsupported(
        "evictor: budgets by layer are not for models with layers that see a window; use another evictor");
  if (window) return Error::unsupported(kOwnBlocks);
  return {};
}

Result<void> check_evictor_pool(const EvictionRule& rule, const KvPool& pool, int64_t context) {
  const KvLayout& tables = pool.layout();
  if (rule.by_layer() && !pool.by_layer() && !rule.by_head())
    return Error::unsupported(
        "evictor: its budgets differ by layer, which needs blocks of their own for layers; start the engine with it, "
        "or another of its kind (--evictor)");
  if (rule.by_head() && (!pool.by_layer() || tables.layers.front().kv_heads > 1))
    return Error::unsupported(
        "evictor: its budgets differ by KV head, which needs blocks of their own for heads; start the engine with it, "
        "or another of its kind (--evictor)");
  if (rule.by_layer() && !rule.by_head() && tables.per_head_tables > 1)
    return Error::unsupported(
        "evictor: its budgets differ by layer, and every KV head has blocks of its own in this engine; start another "
        "engine with it, or choose one with budgets by head");
  if (pool.groups() > 1 && !pool.evicts()) return Error::unsupported(kOwnBlocks);
  return check_evictor_layout(rule, pool.layout(), context);
}

Result<void> check_layer_blocks(const EngineOptions& options, const EvictionRule& rule, const KvLayout& layout,
                                int64_t own_layers, int64_t context) {
  if (std::ssize(layout.layers) != own_layers)
    return Error::unsupported(
        "evictor: budgets by layer do not go with a drafter that stores keys of its own; use ngram, or another "
        "evictor");
  if (has_tier(options) || has_store(options)) return Error::unsupported(kBlocksByLayer);
  if (!options.document_context.empty() && options.document_context != "none")
    return Error::unsupported(kBlocksByLayer);
  return check_evictor_layout(rule, layout, context);
}

Result<void> check_evictor_pattern(const EvictionRule& rule, const AttentionPattern* pattern, const KvLayout& layout) {
  if (!pattern) return {};
  if (rule.evictor->gated())
    return Error::unsupported(
        fmt::format("evictor: gates hide single keys, of which attention {} sees whole blocks; omit one of the two",
                    pattern->text()));
  if (rule.by_head() || layout.per_head_tables > 1)
    return Error::unsupported(
        fmt::format("evictor: budgets by head do not go with attention {}, whose heads see blocks of one table; omit "
                    "one of the two",
                    pattern->text()));
  if (!rule.by_layer() || pattern_layer_sets(pattern) == 0) return {};
  return Error::unsupported(fmt::format(
      "evictor: budgets by layer do not go with attention {}, which stores rows of its own beside the keys; "
      "use a static pattern, or an evictor with one budget",
      pattern->text()));
}

Result<void> check_evictor_draft(const ArchSpec& spec, int64_t context) {
  for (const LayerSpec& layer : spec.layers)
    if (layer.window > 0 && layer.window < context)
      return Error::unsupported("evictor: the draft model has layers that see a window; use ngram, or another model");
  return {};
}

Result<void> check_moved_positions(const EvictionRule& rule, const ArchSpec& spec, const KvLayout& layout) {
  if (!rule.moves_keys()) return {};
  if (layout.by_layer)
    return Error::unsupported(
        "evictor: positions=cache: layers of this engine have blocks of their own, with other tokens in each");
  if (!layout.windows.empty())
    return Error::unsupported(
        "evictor: positions=cache: layers of this model see a window and keep other tokens than the rest; use "
        "positions=text");
  return check_movable(spec, "evictor: positions=cache");
}

namespace {

// Of the first layer; those of an evictor with budgets by head are alike (KvLayout::use_per_head_tables()). Latent
// attention stores one.
int64_t kv_heads_of(const ArchSpec& spec) {
  const std::vector<KvLayer> stored = layer_states(spec);
  return stored.empty() ? 0 : stored.front().kv_heads;
}

// What the evictor leaves to gates, the model must have.
Result<void> check_gates(const EvictionRule& rule, const GateSizes& gates) {
  const TokenGate gate = rule.evictor->gate();
  if (gate == TokenGate::pairs && gates.dims == 0)
    return Error::unsupported(
        fmt::format("evictor {}: this model has no gates between tokens (attn_int_q, attn_int_k and attn_int of each "
                    "layer), which must be trained with it; choose another evictor",
                    rule.text));
  if (gate == TokenGate::selection && !gates.selects)
    return Error::unsupported(
        fmt::format("evictor {}: this model has no gates that select tokens (attn_select of each layer), which must be "
                    "trained with it; choose another evictor",
                    rule.text));
  return {};
}

}  // namespace

Result<void> check_token_evictor(const EvictionRule& rule, const ArchSpec& spec, int64_t context) {
  MILLRACE_TRY_VOID(check_gates(rule, spec.gates));
  MILLRACE_TRY_VOID(rule.evictor->check_layers(spec.layer_count(), kv_heads_of(spec)));
  bool sees_all = false;
  for (const LayerSpec& layer : spec.layers) {
    if (layer.mixer->state_kind == StateKind::recurrent)
      return Error::unsupported("evictor: this model has recurrent layers, which keep no keys and values to drop");
    sees_all |= layer.window <= 0 || layer.window >= context;
  }
  if (sees_all) return {};
  return Error::unsupported(
      "evictor: every layer of this model sees a window, behind which keys and values are dropped anyway; omit it");
}

}  // namespace millrace
