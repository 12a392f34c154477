#include "models/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/background_packer.h"
#include "models/blocks/blocks.h"
#include "models/blocks/early_exit.h"
#include "models/layer_mixers.h"
#include "models/model_builder.h"
#include "models/neurons/neuron_mlp.h"
#include "models/router.h"
#include "models/skipped_blocks.h"
#include "models/tensor_train_loader.h"
#include "models/unread_tensors.h"
#include "models/weight_source.h"

namespace millrace {
namespace {

Result<void> set_router(ArchSpec& spec, const std::string& path, const std::string& name) {
  const auto* entry = routers().find(name);
  if (!entry) return Error::user(fmt::format("router: unknown '{}'; available: {}", name, routers().names()));
  const bool own = entry == &routers().entries().front();
  if (!own && spec.moe.experts == 0)
    return Error::unsupported(fmt::format("router {}: {} has no mixture of experts", name, path));
  const auto set = [&](MoeSpec& moe) {
    moe.router = entry->member;
    if (entry->member->configure) entry->member->configure(moe);
  };
  set(spec.moe);
  for (LayerSpec& layer : spec.layers)
    if (layer.moe) set(layer.experts);
  return {};
}

void find_prefixes(const Batch& batch, ForwardContext& context) {
  if (context.prefixes())
    context.shared_prefixes.find(batch.spans, batch.block_tables, context.kv().layout().block_tokens);
}

// The row that is given for token t; null: it has an id.
const float* given_row(const Batch& batch, int64_t t) {
  if (batch.embeddings.empty()) return nullptr;
  const auto found = std::ranges::lower_bound(batch.embeddings, t, {}, &BatchEmbedding::token);
  return found != batch.embeddings.end() && found->token == t ? found->row : nullptr;
}

// Returns the last layer that stores keys, values or a state. Tokens without logits skip the layers after it.
int64_t last_stored(const ArchSpec& spec) {
  int64_t last = spec.layer_count() - 1;
  while (last > 0 && spec.layers[static_cast<size_t>(last)].kv_from >= 0) --last;
  return last;
}

// Adds a layer's own input to the complete residual, and corrects further residual streams.
void end_layer(const ArchSpec& spec, int64_t index, const LayerWeights& weights, int64_t tokens,
               ForwardContext& context) {
  if (weights.alt_up) correct_streams(spec, *weights.alt_up, tokens, context);
  layer_input_block(spec, index, weights, tokens, context);
  if (weights.alt_up)
    add_to_streams(spec, weights.input_post_norm, tokens, context);
  else
    context.pending = &weights.input_post_norm;
}

}  // namespace

Result<std::unique_ptr<Model>> Model::load(std::shared_ptr<const ModelFiles> files, const KernelTable& table,
                                           ThreadPool& pool, const ModelOptions& options) {
  MILLRACE_TRY(ArchSpec spec, read_arch_spec(*files));
  MILLRACE_TRY_VOID(set_router(spec, files->path, options.router));
  const Arch& arch = *find_arch(*files);
  if (const std::string unread = unread_tensors(*files, spec.layer_count()); !unread.empty() && options.warn)
    options.warn(unread);
  return ModelBuilder(std::move(files), arch, std::move(spec)).build(table, pool, options);
}

Model::Model() = default;
Model::~Model() = default;

// False: the weights cannot be read, and the pass has failed.
bool Model::acquire(int64_t layer, ForwardContext& context, WeightLease& lease) const {
  context.source = source_.get();
  const auto next = static_cast<size_t>(layer) + 1;
  context.next_layer = next < layers_.size() ? &layers_[next] : nullptr;
  if (!source_ || context.failed) return !context.failed;
  auto acquired = source_->acquire({layer});
  if (!acquired.ok()) {
    context.fail(acquired.error());
    return false;
  }
  lease = std::move(*acquired);
  return true;
}

std::vector<KvLayer> Model::kv_layers() const { return layer_states(spec_); }

void Model::embedding(TokenId token, float* row) const {
  const int64_t cols = embedding_.cols();  // fewer than the width: cores of a tensor train
  std::vector<float> stored(static_cast<size_t>(cols));
  float* const to = cols == spec_.width ? row : stored.data();
  embedding_.format->decode(embedding_.data + token * embedding_.format->row_bytes(cols), to, cols);
  if (to != row) checked_tensor_train(*files_).decode(to, row);
}

void Model::embed_row(const Batch& batch, int64_t t, ForwardContext& context) const {
  const int64_t width = spec_.width;
  const KernelTable& kernels = context.kernels();
  float* row = context.residual.as<float>() + t * width;
  if (const float* given = given_row(batch, t)) {
    std::copy_n(given, width, row);
  } else {
    if (packing_ && head_.data == embedding_.data && !packing_->complete()) packing_->check_row(head_, batch.tokens[t]);
    const int64_t cols = embedding_.cols();
    float* const stored = cols == width ? row : context.normed.as<float>() + t * width;  // unused until the first norm
    kernels.find_codec(embedding_.format)
        ->decode(embedding_.data + batch.tokens[t] * embedding_.format->row_bytes(cols), stored, cols);
    if (stored != row) checked_tensor_train(*files_).decode(stored, row);
  }
  if (spec_.embedding_scale != 1.0f) kernels.scale(row, spec_.embedding_scale, width);
  if (!types_.empty()) {
    const int64_t type = context.token_types.empty() ? 0 : context.token_types[static_cast<size_t>(t)];
    kernels.add(types_.data() + type * width, row, width);
  }
  if (spec_.learned_positions) add_position(batch.positions[t], t, context);
  if (spec_.embedding_norm) norm_row(spec_, embedding_norm_, kernels, row, row);
}

void Model::add_position(int64_t position, int64_t t, ForwardContext& context) const {
  const int64_t width = spec_.width;
  float* values = context.normed.as<float>() + t * width;  // unused until the first norm
  positions_.format->decode(positions_.data + (spec_.first_position + position) * positions_.format->row_bytes(width),
                            values, width);
  context.kernels().add(values, context.residual.as<float>() + t * width, width);
}

// A span of an encoder is a whole text, or a pair of texts with a separator behind each.
void Model::find_types(const Batch& batch, ForwardContext& context) const {
  context.token_types.clear();
  if (spec_.token_types < 2 || separator_ < 0) return;
  for (const BatchSpan& span : batch.spans) {
    uint8_t type = 0;
    for (int64_t t = span.begin; t < span.begin + span.count; ++t) {
      context.token_types.push_back(type);
      if (batch.tokens[static_cast<size_t>(t)] == separator_) type = 1;
    }
  }
}

// residual += norm(block_out), or residual = norm(residual + block_out)
void Model::add_row(const NormWeights& post_norm, int64_t t, ForwardContext& context) const {
  const int64_t width = spec_.width;
  const KernelTable& kernels = context.kernels();
  float* out = context.block_out.as<float>() + t * width;
  float* residual = context.residual.as<float>() + t * width;
  const bool norm = !post_norm.scale.empty();
  if (norm && !spec_.sum_norm) norm_row(spec_, post_norm, kernels, out, out);
  if (spec_.residual_scale == 1.0f)
    kernels.add(out, residual, width);
  else
    kernels.add_scaled(out, spec_.residual_scale, residual, width);
  if (post_norm.residual_factor != 1.0f) kernels.scale(residual, post_norm.residual_factor, width);
  if (norm && spec_.sum_norm) norm_row(spec_, post_norm, kernels, residual, residual);
}

// residual = shortcut residual, of a stream to which nothing is pending. The product goes to `normed`, which is free
// after a block, and the two change places.
void Model::pass_shortcut(const Weight& shortcut, LinearId id, int64_t tokens, ForwardContext& context) const {
  if (!shortcut.present()) return;
  static const std::vector<float> kNoBias;
  const float* residual = context.residual.as<float>();
  const ActivationRows rows = encode_activations(context.kernels(), context.pool(), shortcut.format->activation,
                                                 residual, spec_.width, tokens, spec_.width, context.encoded.data());
  project(context, residual, rows, {{id, shortcut, kNoBias, context.normed.as<float>()}});
  copy_exited_rows(spec_, context);
  std::swap(context.residual, context.normed);
}

// One pass over the rows: adds the last block's output, then norm, then rounding for the next matrix.
ActivationRows Model::start_block(const NormWeights& norm, const Weight* next, int64_t tokens,
                                  ForwardContext& context) const {
  const int64_t width = spec_.width;
  const KernelTable& kernels = context.kernels();
  const float* residual = context.residual.as<float>();
  float* normed = context.normed.as<float>();
  const ActivationRows rows = next ? rows_for(*next, tokens, width, context.encoded.data()) : ActivationRows{};
  const NormWeights* pending = std::exchange(context.pending, nullptr);
  const auto add = [&](int64_t t) { add_row(*pending, t, context); };
  const auto normalize = [&](int64_t t) { norm_row(spec_, norm, kernels, residual + t * width, normed + t * width); };
  const auto round = [&](int64_t t) { encode_row(kernels, rows, t, normed + t * width, context.encoded.data()); };
  if (!context.fused().rows) {
    if (pending) for_rows(context, tokens, width, add);
    for_rows(context, tokens, width, normalize);
    for_rows(context, tokens, width, round);
    return rows;
  }
  for_rows(context, tokens, 2 * width, [&](int64_t t) {
    if (pending) add(t);
    normalize(t);
    round(t);
  });
  return rows;
}

void Model::embed(const Batch& batch, ForwardContext& context) const {
  context.pending = nullptr;
  context.exits.clear();
  context.expect_rows(batch.size());
  find_types(batch, context);
  for_rows(context, batch.size(), 2 * spec_.width, [&](int64_t t) {
    embed_row(batch, t, context);
    fill_rope_row(spec_, rope_frequencies_, rope_scales_, batch.positions[t], t, context);
  });
  if (spec_.layer_input > 0) make_layer_inputs(spec_, layer_inputs_, batch, context);
  if (spec_.streams > 1) make_streams(spec_, stream_in_, batch.size(), context);
}

const Batch& Model::run_layers(const Batch& all, int64_t from, int64_t to, ForwardContext& context) const {
  const Batch* batch = &all;
  const int64_t last = last_stored(spec_);
  find_prefixes(*batch, context);
  int64_t next_exit = find_exit(*batch, from, spec_.layer_count());
  for (int64_t i = from; i < to && batch->size() > 0; ++i) {
    const LayerSpec& layer = spec_.layers[static_cast<size_t>(i)];
    const bool mixes = !context.skipped || !context.skipped->mixer_of(i);
    const bool feeds = layer.mlp && (!context.skipped || !context.skipped->mlp_of(i));
    WeightLease lease;
    if (!acquire(i, context, lease)) return *batch;  // skipped layers, too: a source expects every layer
    const LayerWeights& weights = layers_[static_cast<size_t>(i)];
    const LinearId at{.layer = static_cast<int32_t>(i)};
    const auto pass = [&](const Weight& shortcut, LinearKind kind, bool block) {
      if (!block && shortcut.present()) add_pending(batch->size(), context);
      pass_shortcut(shortcut, at.of(kind), batch->size(), context);
    };
    if (weights.alt_up) predict_streams(spec_, *weights.alt_up, batch->size(), context);
    if (mixes) {
      const ActivationRows x =
          start_block(weights.attention_norm, &first_matrix(layer, weights), batch->size(), context);
      for (ForwardObserver* observer : context.hooks.observers())
        observer->residual(i, context.residual.as<float>(), batch->size(), spec_.width);
      begin_mixers({spec_, layer, i, weights, *batch, context}, x);
      if (weights.laurel_left.present()) laurel_block(spec_, i, weights, batch->size(), context);
      if (i == last) {  // the other tokens' outputs are not used
        batch = &keep_outputs(spec_, *batch, &layer, context);
        if (batch->size() == 0) break;
        if (batch != &all) find_prefixes(*batch, context);
      }
      finish_mixers({spec_, layer, i, weights, *batch, context});
      if (weights.laurel_left.present()) add_laurel(spec_, batch->size(), context);
    }
    pass(weights.attention_shortcut, LinearKind::attention_shortcut, mixes);
    if (mixes) context.pending = &weights.attention_post_norm;
    for (LayerBlock* block : context.hooks.blocks()) {
      if (!block->runs(i)) continue;
      add_pending(batch->size(), context);
      block->run(i, context.residual.as<float>());
    }
    if (feeds) {
      const Weight& first = layer.has_dense_mlp() ? weights.mlp.up : weights.router;
      const ActivationRows y = start_block(weights.mlp_norm, &first, batch->size(), context);
      for (ForwardObserver* observer : context.hooks.observers())
        observer->middle(i, context.residual.as<float>(), batch->size(), spec_.width);
      if (layer.moe && layer.experts.beside_mlp)
        mlp_and_experts_block(spec_, layer, at, weights, y, context);
      else if (layer.moe)
        moe_block(spec_, layer.experts, at, weights, y, context);
      else if (NeuronMlp* const neurons = source_ ? source_->neurons() : nullptr)
        neurons->run(spec_, at, weights.mlp, y, context);
      else
        mlp_block(spec_, at, weights.mlp, layer.hidden, y, context, layer.gate_cut);
      if (context.failed) return *batch;
    }
    pass(weights.mlp_shortcut, LinearKind::mlp_shortcut, feeds);
    if (feeds) context.pending = &weights.mlp_post_norm;
    if (weights.input_gate.present()) {
      add_pending(batch->size(), context);
      end_layer(spec_, i, weights, batch->size(), context);
    }
    if (i + 1 == next_exit) {
      add_pending(batch->size(), context);
      batch = &exit_rows(spec_, *batch, i + 1, context);
      next_exit = find_exit(*batch, i + 1, spec_.layer_count());
      if (batch->size() > 0) find_prefixes(*batch, context);
    }
  }
  if (to == spec_.layer_count() && spec_.streams > 1 && batch->size() > 0)
    merge_streams(spec_, stream_out_, batch->size(), context);
  if (to < spec_.layer_count() || !context.exits.any()) return *batch;
  add_pending(batch->size(), context);
  return rejoin_exited(spec_, *batch, context);
}

void Model::store_keys(const Batch& batch, int64_t index, ForwardContext& context) const {
  const LayerSpec& layer = spec_.layers[static_cast<size_t>(index)];
  WeightLease lease;
  if (!acquire(index, context, lease)) return;
  const LayerWeights& weights = layers_[static_cast<size_t>(index)];
  const ActivationRows x = start_block(weights.attention_norm, &first_matrix(layer, weights), batch.size(), context);
  begin_mixers({spec_, layer, index, weights, batch, context}, x);
}

void Model::add_pending(int64_t tokens, ForwardContext& context) const {
  const NormWeights* pending = std::exchange(context.pending, nullptr);
  if (pending && !context.failed)
    for_rows(context, tokens, spec_.width, [&](int64_t t) { add_row(*pending, t, context); });
}

ActivationRows Model::last_norm(const Batch& all, ForwardContext& context) const {
  const Batch& batch = keep_outputs(spec_, all, nullptr, context);
  const ActivationRows x = start_block(output_norm_, head_.present() ? &head_ : nullptr, batch.size(), context);
  for (ForwardObserver* observer : context.hooks.observers())
    observer->hidden(context.normed.as<float>(), batch.size(), spec_.width);
  return x;
}

void Model::hidden(const Batch& batch, ForwardContext& context) const {
  if (!batch.output_rows.empty() && !context.failed) last_norm(batch, context);
}

void Model::head(const Batch& batch, ForwardContext& context) const {
  if (batch.output_rows.empty() || context.failed) return;
  const ActivationRows x = last_norm(batch, context);
  logits_of(context.normed.as<float>(), x, context.logits.as<float>(), context);
}

void Model::head_rows(std::span<const int32_t> rows, float* logits, ForwardContext& context) const {
  if (rows.empty() || context.failed) return;
  const KernelTable& kernels = context.kernels();
  const auto count = std::ssize(rows);
  const float* normed = context.normed.as<float>();
  float* chosen = context.residual.as<float>();  // unused after the last norm
  const ActivationRows x = activation_rows(head_.format->activation, count, spec_.width, context.encoded.data());
  for_rows(context, count, spec_.width, [&](int64_t t) {
    std::copy_n(normed + rows[static_cast<size_t>(t)] * spec_.width, spec_.width, chosen + t * spec_.width);
    encode_row(kernels, x, t, chosen + t * spec_.width, context.encoded.data());
  });
  logits_of(chosen, x, logits, context);
}

void Model::logits_of(const float* normed, const ActivationRows& x, float* logits, ForwardContext& context) const {
  const KernelTable& kernels = context.kernels();
  project(context, normed, x, {{LinearId{}, head_, head_bias_, logits}});
  if (spec_.logit_scale == 1.0f && spec_.final_softcap <= 0.0f) return;
  for_rows(context, x.tokens, spec_.vocab, [&](int64_t t) {
    float* row = logits + t * spec_.vocab;
    if (spec_.logit_scale != 1.0f) kernels.scale(row, spec_.logit_scale, spec_.vocab);
    if (spec_.final_softcap > 0.0f) kernels.softcap(row, spec_.final_softcap, spec_.vocab);
  });
}

void Model::forward(const Batch& batch, ForwardContext& context) const {
  embed(batch, context);
  head(run_layers(batch, 0, spec_.layer_count(), context), context);
}

}  // namespace millrace
