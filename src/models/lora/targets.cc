#include "models/lora/targets.h"

#include <charconv>

namespace millrace {
namespace {

std::vector<LoraTarget> layer_targets(const ArchSpec& spec, const LayerWeights& layer, bool experts_alone,
                                      std::string_view part, int64_t rows) {
  const auto one = [](const Weight& weight, int64_t heads = 0) -> std::vector<LoraTarget> {
    if (!weight.present()) return {};
    return {{&weight, 0, heads}};
  };
  if (part == "attn_q") return one(layer.q, spec.heads);
  if (part == "attn_k") return one(layer.k, spec.kv_heads);
  if (part == "attn_v") return one(layer.v);
  if (part == "attn_output") return one(layer.output);
  if (part == "attn_qkv" && layer.q.present())
    return {
        {&layer.q, 0, spec.heads}, {&layer.k, layer.q.rows, spec.kv_heads}, {&layer.v, layer.q.rows + layer.k.rows, 0}};
  if (part == "ffn_gate_shexp") return one(layer.shared.gate);
  if (part == "ffn_up_shexp") return one(layer.shared.up);
  if (part == "ffn_down_shexp") return one(layer.shared.down);
  if (experts_alone) return {};
  if (part == "ffn_gate") return one(layer.mlp.gate);
  if (part == "ffn_up" && spec.gated &&
      rows == layer.mlp.gate.rows + layer.mlp.up.rows)  // fused: gate's rows, then up's
    return {{&layer.mlp.gate, 0, 0}, {&layer.mlp.up, layer.mlp.gate.rows, 0}};
  if (part == "ffn_up") return one(layer.mlp.up);
  if (part == "ffn_down") return one(layer.mlp.down);
  return {};
}

}  // namespace

std::vector<LoraTarget> lora_targets(const Model& model, const std::string& canonical, int64_t rows) {
  std::string_view name = canonical;
  if (name == "output.weight") return {{&model.head(), 0, 0}};
  if (!name.starts_with("blk.") || !name.ends_with(".weight")) return {};
  name = name.substr(4, name.size() - 4 - 7);
  int64_t index = -1;
  const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), index);
  const ArchSpec& spec = model.spec();
  if (failed != std::errc() || end == name.data() + name.size() || *end != '.' || index < 0 ||
      index >= spec.layer_count())
    return {};
  name.remove_prefix(static_cast<size_t>(end - name.data()) + 1);
  return layer_targets(spec, model.layer(index), !spec.layers[static_cast<size_t>(index)].has_dense_mlp(), name, rows);
}

}  // namespace millrace
