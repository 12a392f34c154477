#include "models/layer_matrices.h"

#include <fmt/format.h>

#include <cmath>

namespace millrace {

Result<void> load_mlp(WeightLoader& loader, const ArchSpec& spec, const std::string& prefix, int64_t hidden,
                      LayerWeights& layer) {
  MlpWeights& mlp = layer.mlp;
  if (spec.gated && loader.find(prefix + "ffn_up_gate.weight")) {  // fused: up's rows, then gate's
    MILLRACE_TRY(mlp.up, loader.rows_of(prefix + "ffn_up_gate.weight", 2 * hidden, 0, hidden, spec.width));
    MILLRACE_TRY(mlp.gate, loader.rows_of(prefix + "ffn_up_gate.weight", 2 * hidden, hidden, hidden, spec.width));
  } else if (spec.gated && !loader.find(prefix + "ffn_gate.weight")) {  // fused: gate's rows, then up's
    MILLRACE_TRY(mlp.gate, loader.rows_of(prefix + "ffn_up.weight", 2 * hidden, 0, hidden, spec.width));
    MILLRACE_TRY(mlp.up, loader.rows_of(prefix + "ffn_up.weight", 2 * hidden, hidden, hidden, spec.width));
  } else {
    if (spec.gated) {
      MILLRACE_TRY(mlp.gate, loader.matrix(prefix + "ffn_gate.weight", hidden, spec.width));
      MILLRACE_TRY(mlp.gate_bias, loader.optional_vector(prefix + "ffn_gate.bias", hidden));
    }
    MILLRACE_TRY(mlp.up, loader.matrix(prefix + "ffn_up.weight", hidden, spec.width));
    MILLRACE_TRY(mlp.up_bias, loader.optional_vector(prefix + "ffn_up.bias", hidden));
  }
  MILLRACE_TRY(mlp.down, loader.matrix(prefix + "ffn_down.weight", spec.width, hidden));
  MILLRACE_TRY(mlp.down_bias, loader.optional_vector(prefix + "ffn_down.bias", spec.width));
  return {};
}

// Biases of all experts [experts, n], or none.
static Result<std::vector<float>> load_expert_biases(WeightLoader& loader, const std::string& name, int64_t experts,
                                                     int64_t n) {
  if (!loader.find(name)) return std::vector<float>();
  return loader.table(name, experts, n);
}

static Result<void> load_biases(WeightLoader& loader, const ArchSpec& spec, const std::string& prefix,
                                const MoeSpec& moe, LayerWeights& layer) {
  const std::pair<const char*, std::vector<float> MlpWeights::*> parts[] = {
      {"ffn_gate_exps.bias", &MlpWeights::gate_bias},
      {"ffn_up_exps.bias", &MlpWeights::up_bias},
      {"ffn_down_exps.bias", &MlpWeights::down_bias}};
  for (const auto& [name, bias] : parts) {
    const int64_t n = bias == &MlpWeights::down_bias ? spec.width : moe.hidden;
    MILLRACE_TRY(const auto all, load_expert_biases(loader, prefix + name, moe.experts, n));
    for (size_t e = 0; !all.empty() && e < layer.experts.size(); ++e) {
      const auto first = all.begin() + static_cast<int64_t>(e) * n;
      (layer.experts[e].*bias).assign(first, first + n);
    }
  }
  MILLRACE_TRY(layer.router_bias, loader.optional_vector(prefix + "ffn_gate_inp.bias", moe.experts));
  return {};
}

// Experts are stored in stacked tensors [experts, rows, cols], or individually.
static Result<MlpWeights> load_expert(WeightLoader& loader, const std::string& path, const ArchSpec& spec,
                                      const std::string& prefix, const MoeSpec& moe, int64_t expert) {
  auto load = [&](const char* part, int64_t rows, int64_t cols) -> Result<Weight> {
    const std::string stacked = prefix + part + "_exps.weight";
    if (loader.find(stacked)) return loader.rows_of(stacked, moe.experts * rows, expert * rows, rows, cols);
    return loader.matrix(fmt::format("{}{}.{}.weight", prefix, part, expert), rows, cols);
  };
  MlpWeights mlp;
  if (const std::string both = prefix + "ffn_gate_up_exps.weight"; loader.find(both)) {  // gate's rows, then up's
    const int64_t total = 2 * moe.experts * moe.hidden, first = 2 * expert * moe.hidden;
    MILLRACE_TRY(mlp.gate, loader.rows_of(both, total, first, moe.hidden, spec.width));
    MILLRACE_TRY(mlp.up, loader.rows_of(both, total, first + moe.hidden, moe.hidden, spec.width));
  } else {
    if (spec.gated) {
      MILLRACE_TRY(mlp.gate, load("ffn_gate", moe.hidden, spec.width));
    }
    MILLRACE_TRY(mlp.up, load("ffn_up", moe.hidden, spec.width));
  }
  if (const std::string turned = prefix + "ffn_down_exps.transposed";
      loader.find(turned)) {  // [experts, hidden, width]
    MILLRACE_TRY(mlp.down,
                 loader.transpose_of(turned, moe.experts * moe.hidden, expert * moe.hidden, moe.hidden, spec.width));
  } else {
    MILLRACE_TRY(mlp.down, load("ffn_down", spec.width, moe.hidden));
  }
  if (mlp.gate.present() && mlp.gate.format->activation != mlp.up.format->activation)
    return Error::unsupported(fmt::format("{}: experts whose gate ({}) and up ({}) formats need different activations",
                                          path, mlp.gate.format->name, mlp.up.format->name));
  return mlp;
}

Result<void> load_moe(WeightLoader& loader, const std::string& path, const ArchSpec& spec, const std::string& prefix,
                      const MoeSpec& moe, LayerWeights& layer) {
  MILLRACE_TRY(layer.router, loader.matrix(prefix + "ffn_gate_inp.weight", moe.experts, spec.width));
  for (int64_t e = 0; e < moe.experts; ++e) {
    MILLRACE_TRY(auto expert, load_expert(loader, path, spec, prefix, moe, e));
    // moe_block() encodes the layer's input once for all experts, and their hidden rows in one pass.
    if (e > 0 && expert.up.format->activation != layer.experts[0].up.format->activation)
      return Error::unsupported(
          fmt::format("{}: tensor {} ({}) needs different activations than the layer's first expert ({})", path,
                      expert.up.name, expert.up.format->name, layer.experts[0].up.format->name));
    if (e > 0 && expert.down.format->activation != layer.experts[0].down.format->activation)
      return Error::unsupported(
          fmt::format("{}: tensor {} ({}) needs different activations than the layer's first expert ({})", path,
                      expert.down.name, expert.down.format->name, layer.experts[0].down.format->name));
    layer.experts.push_back(std::move(expert));
  }
  MILLRACE_TRY_VOID(load_biases(loader, spec, prefix, moe, layer));
  if (moe.beside_mlp) {
    MILLRACE_TRY(layer.router_scale, loader.vector(prefix + "ffn_gate_inp.scale", spec.width));
    for (float& scale : layer.router_scale) scale /= std::sqrt(static_cast<float>(spec.width));
    MILLRACE_TRY(layer.expert_scales, loader.vector(prefix + "ffn_down_exps.scale", moe.experts));
  }
  // A shared expert without matrices outputs its bias: one vector for all experts.
  if (moe.shared_hidden == 0) {
    MILLRACE_TRY(layer.shared.down_bias, loader.optional_vector(prefix + "ffn_down_shexp.bias", spec.width));
  }
  if (moe.shared_hidden > 0) {
    MILLRACE_TRY(layer.shared.gate, loader.matrix(prefix + "ffn_gate_shexp.weight", moe.shared_hidden, spec.width));
    MILLRACE_TRY(layer.shared.up, loader.matrix(prefix + "ffn_up_shexp.weight", moe.shared_hidden, spec.width));
    MILLRACE_TRY(layer.shared.down, loader.matrix(prefix + "ffn_down_shexp.weight", spec.width, moe.shared_hidden));
    if (moe.shared_gate) {
      MILLRACE_TRY(layer.shared_gate, loader.matrix(prefix + "ffn_gate_inp_shexp.weight", 1, spec.width));
    }
  }
  return {};
}

void add_matrices(LayerWeights& layer, std::vector<Weight*>& out) {
  const auto add = [&](std::initializer_list<Weight*> weights) {
    for (Weight* weight : weights)
      if (weight->present()) out.push_back(weight);
  };
  add({&layer.q, &layer.k, &layer.v, &layer.output, &layer.router, &layer.shared_gate});
  if (layer.mixer)
    for (Weight* weight : layer.mixer->matrices()) add({weight});
  add({&layer.mlp.gate, &layer.mlp.up, &layer.mlp.down, &layer.shared.gate, &layer.shared.up, &layer.shared.down});
  for (MlpWeights& expert : layer.experts) add({&expert.gate, &expert.up, &expert.down});
  add({&layer.attention_shortcut, &layer.mlp_shortcut, &layer.input_gate, &layer.input_projection, &layer.laurel_left,
       &layer.laurel_right});
}

std::string shortcut_tensor(int64_t layer, bool mlp) {
  return fmt::format("blk.{}.{}_shortcut.weight", layer, mlp ? "ffn" : "attn");
}

bool is_shortcut(std::string_view tensor) {
  return tensor.starts_with("blk.") &&
         (tensor.ends_with(".attn_shortcut.weight") || tensor.ends_with(".ffn_shortcut.weight"));
}

}  // namespace millrace
