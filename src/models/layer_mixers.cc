#include "models/layer_mixers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/blocks/blocks.h"

namespace millrace {
namespace {

// The layer of the pool that the layer's queries read.
int64_t stored_layer_of(const MixerCall& call) {
  return call.context.kv().layer_of(call.context.first_kv_layer, call.layer.stored_by(call.index));
}

}  // namespace

bool keeps(const LayerSpec& layer, StateKind kind) {
  return std::ranges::any_of(layer.mixers, [&](const LayerMixer& one) { return one.mixer->state_kind == kind; });
}

bool keeps(const ArchSpec& spec, StateKind kind) {
  return std::ranges::any_of(spec.layers, [&](const LayerSpec& layer) { return keeps(layer, kind); });
}

bool is_plain_attention(const LayerSpec& layer) {
  return layer.mixers.size() == 1 && layer.mixers.front() == LayerMixer{};
}

std::string mixers_problem(const ArchSpec& spec, const LayerSpec& layer) {
  const auto others =
      std::ranges::count_if(layer.mixers, [](const LayerMixer& one) { return one.mixer != &kAttentionMixer; });
  if (layer.mixers.empty() || others > 1 || std::ssize(layer.mixers) - others > 1)
    return fmt::format("a layer of {} mixers, {} of them attention", layer.mixers.size(),
                       std::ssize(layer.mixers) - others);
  for (const LayerMixer& one : layer.mixers) {
    if (!std::isfinite(one.scale))
      return fmt::format("the output of the mixer {} times {}", one.mixer->name, one.scale);
    if (std::string problem = one.mixer->problem(spec, layer); !problem.empty()) return problem;
  }
  return {};
}

KvLayer layer_state(const LayerSpec& layer) {
  KvLayer out{.kv_heads = 0, .head_dim = 0};
  for (const LayerMixer& one : layer.mixers) {
    const KvLayer own = one.mixer->state(layer);
    const int64_t values = out.state_values + own.state_values;
    if (own.kv_heads > 0) out = own;
    out.window = std::max(out.window, own.window);  // of a layer that reads another one's keys, too
    out.state_values = values;
  }
  return out;
}

Result<void> load_mixers(WeightLoader& loader, const std::string& prefix, const ArchSpec& spec, const LayerSpec& layer,
                         LayerWeights& weights) {
  for (const LayerMixer& one : layer.mixers) MILLRACE_TRY_VOID(one.mixer->load(loader, prefix, spec, layer, weights));
  return {};
}

const Weight& first_matrix(const LayerSpec& layer, const LayerWeights& weights) {
  return layer.mixers.front().mixer->first(weights);
}

void begin_mixers(const MixerCall& call, const ActivationRows& x) {
  ForwardContext& context = call.context;
  if (context.stager) context.stager->before_keys(call.batch, stored_layer_of(call));
  const int64_t tokens = x.tokens, width = call.spec.width;
  for (const LayerMixer& one : call.layer.mixers) {
    if (&one == &call.layer.mixers.front()) {
      one.mixer->begin(call, x);
      continue;
    }
    const float* normed = context.normed.as<float>();
    const ActivationRows rows = rows_for(one.mixer->first(call.weights), tokens, width, context.encoded.data());
    if (rows.data)
      encode_activations(context.kernels(), context.pool(), rows.kind, normed, width, tokens, width,
                         context.encoded.data());
    one.mixer->begin(call, rows);
  }
}

void finish_mixers(const MixerCall& call) {
  ForwardContext& context = call.context;
  const KernelTable& kernels = context.kernels();
  const int64_t tokens = call.batch.size(), width = call.spec.width;
  for (const LayerMixer& one : call.layer.mixers) {
    const bool first = &one == &call.layer.mixers.front();
    if (!first) std::swap(context.block_out, context.normed);  // the sum of the mixers before it
    one.mixer->finish(call);
    if (first && one.scale == 1.0f) continue;
    for_rows(context, tokens, width, [&](int64_t t) {
      float* out = context.block_out.as<float>() + t * width;
      if (one.scale != 1.0f) kernels.scale(out, one.scale, width);
      if (!first) kernels.add(context.normed.as<float>() + t * width, out, width);
    });
  }
}

}  // namespace millrace
