#include "models/pattern_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/fitted_pattern.h"
#include "attention/flat_rows.h"
#include "attention/pattern_layers.h"
#include "models/layer_mixers.h"

namespace millrace {

Result<void> check_residuals(const ArchSpec& spec, const KvPool& kv, const ForwardLimits& limits) {
  if (!kv.layout().has_residuals()) return {};
  if (limits.switches.attention.unify)
    return Error::unsupported(fmt::format(
        "KV format {}: kernel unified_max finds no largest weight, by which queries read both parts; omit it",
        kv.layout().format_name()));
  for (LayerSpec layer : spec.layers) {
    set_own_sizes(spec, layer);
    if (layer.kv_heads > 0 && layer.heads / layer.kv_heads > kMaxFlatRows)
      return Error::unsupported(fmt::format("KV format {}: at most {} heads may share a KV head, of this model {} do",
                                            kv.layout().format_name(), kMaxFlatRows, layer.heads / layer.kv_heads));
  }
  return {};
}

Result<void> check_pattern(const ArchSpec& spec, const KvPool& kv, const ForwardLimits& limits) {
  const AttentionPattern* pattern = limits.switches.attention.pattern;
  if (!pattern) return {};
  const int64_t block = pattern->block();
  MILLRACE_TRY_VOID(check_pattern_blocks(*pattern, limits.context, kv.layout().block_tokens));
  if (kv.layout().codec && diffusing_pattern(pattern))
    return Error::unsupported(fmt::format(
        "attention {}: KV format {} encodes whole blocks, and values of hops are rows, which no kernel reads "
        "together with encoded keys; use f16 or another format of rows",
        pattern->text(), kv.layout().format_name()));
  if (const auto* fitted = dynamic_cast<const FittedPattern*>(pattern)) {
    const std::span<const KvLayer> layers(kv.layout().layers);
    const auto fits = fitted->check_layers(layers.first(std::min(spec.layers.size(), layers.size())));
    if (!fits.ok()) return Error::user(fmt::format("attention {}: {}", pattern->text(), fits.error().message));
  }
  const bool dynamic = dynamic_pattern(pattern);
  if (kv.layout().has_residuals() && diffusing_pattern(pattern))
    return Error::unsupported(fmt::format(
        "attention {}: KV format {}: values of hops are stored without residuals; use q8_0, or another pattern",
        pattern->text(), kv.layout().format_name()));
  if (dynamic && block > kMaxDynamicBlock)
    return Error::user(
        fmt::format("attention {}: block: at most {} tokens, is {}", pattern->text(), kMaxDynamicBlock, block));
  const int64_t sets = pattern_layer_sets(pattern);
  bool sees_all = false;
  for (const LayerSpec& layer : spec.layers) {
    if (keeps(layer, StateKind::recurrent))
      return Error::unsupported(
          fmt::format("attention {}: this model has recurrent layers, which see no single tokens", pattern->text()));
    if (layer.window > 0 && layer.window < limits.context) continue;
    sees_all = true;
    if (diffusing_pattern(pattern) && layer.head_dim > kMaxHopDim)
      return Error::unsupported(fmt::format("attention {}: heads have {} dims, at most {} are supported",
                                            pattern->text(), layer.head_dim, kMaxHopDim));
    if (dynamic && layer.head_dim > kMaxDynamicDim)
      return Error::unsupported(fmt::format("attention {}: heads have {} dims, at most {} are supported",
                                            pattern->text(), layer.head_dim, kMaxDynamicDim));
  }
  if (sees_all && sets > 0 && std::ssize(kv.layout().layers) != (1 + sets) * spec.layer_count())
    return Error::internal(fmt::format("attention {}: the KV pool has no room for its layers", pattern->text()));
  if (sees_all) return {};
  return Error::unsupported(
      fmt::format("attention {}: every layer of this model sees a window, which it keeps; omit it", pattern->text()));
}

}  // namespace millrace
