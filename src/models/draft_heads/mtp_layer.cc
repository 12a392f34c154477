#include "models/draft_heads/mtp_layer.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/activation.h"
#include "models/blocks/blocks.h"
#include "models/blocks/rope.h"
#include "models/layer_matrices.h"
#include "models/layer_mixers.h"

namespace millrace {
namespace {

const std::vector<TensorName> kMtpNames = {
    {"blk.{l}.nextn.enorm.weight", "model.layers.{l}.enorm.weight"},
    {"blk.{l}.nextn.hnorm.weight", "model.layers.{l}.hnorm.weight"},
    {"blk.{l}.nextn.eh_proj.weight", "model.layers.{l}.eh_proj.weight"},
    {"blk.{l}.nextn.shared_head_norm.weight", "model.layers.{l}.shared_head.norm.weight"},
    {"blk.{l}.nextn.shared_head_head.weight", "model.layers.{l}.shared_head.head.weight"},
};
const Arch kMtpParts = {.name = "mtp", .huggingface_type = "", .summary = "", .paper = "", .names = kMtpNames};

// Folders of Qwen3-Next and Qwen3.5 number their layers for predictions from 0.
const std::vector<TensorName> kQwenMtpNames = {
    {"blk.{l}.nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight"},
    {"blk.{l}.nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight"},
    {"blk.{l}.nextn.eh_proj.weight", "mtp.fc.weight"},
    {"blk.{l}.nextn.shared_head_norm.weight", "mtp.norm.weight"},
};

// The sizes of the layer: those of the model's last layer of attention; null: there is none.
const LayerSpec* last_attention(const ArchSpec& spec) {
  const auto found = std::find_if(spec.layers.rbegin(), spec.layers.rend(),
                                  [](const LayerSpec& layer) { return !keeps(layer, StateKind::recurrent); });
  return found == spec.layers.rend() ? nullptr : &*found;
}

int64_t widest_mtp_row(int64_t cols) {
  int64_t bytes = 0;
  for (Activation kind : kActivations) bytes = std::max(bytes, activation_row_bytes(kind, cols));
  return bytes;
}

}  // namespace

const Arch kQwenMtpParts = {.name = "mtp", .huggingface_type = "", .summary = "", .paper = "", .names = kQwenMtpNames};

Result<std::unique_ptr<MtpLayer>> MtpLayer::load(std::shared_ptr<const ModelFiles> files, const Model& target,
                                                 const KernelTable& table, ThreadPool& pool, int64_t context,
                                                 std::shared_ptr<MemoryAccounts> accounts) {
  auto made = std::unique_ptr<MtpLayer>(new MtpLayer(target));
  made->files_ = std::move(files);
  made->spec_ = target.spec();
  ArchSpec& spec = made->spec_;
  const std::string prefix = fmt::format("blk.{}.", spec.layer_count());
  const std::string join = prefix + "nextn.eh_proj.weight";
  made->numbered_apart_ =
      WeightLoader(*made->files_, kQwenMtpParts).find(join) && !WeightLoader(*made->files_, kMtpParts).find(join);
  WeightLoader loader(*made->files_, made->numbered_apart_ ? kQwenMtpParts : kMtpParts);
  const LayerSpec* const sizes = last_attention(spec);
  if (!loader.find(join) || !sizes || spec.norm != NormKind::rms || !spec.pre_norm)
    return Error::unsupported(
        fmt::format("{}: no layer that predicts further tokens is stored behind the model's {} layers; choose another "
                    "drafter",
                    made->files_->path, spec.layer_count()));
  spec.layers = {LayerSpec(*sizes)};
  for (const RopeSpec& rope : spec.ropes) {
    made->rope_frequencies_.push_back(rope_frequencies(rope, context));
    made->rope_scales_.push_back(rope_scale(rope));
  }
  const int64_t width = spec.width;
  MILLRACE_TRY(made->token_norm_.scale, loader.vector(prefix + "nextn.enorm.weight", width));
  MILLRACE_TRY(made->feature_norm_.scale, loader.vector(prefix + "nextn.hnorm.weight", width));
  MILLRACE_TRY(made->output_norm_.scale, loader.optional_vector(prefix + "nextn.shared_head_norm.weight", width));
  if (made->output_norm_.scale.empty()) {
    MILLRACE_TRY(made->output_norm_.scale, loader.vector("output_norm.weight", width));
  }
  MILLRACE_TRY(made->join_, loader.matrix(join, width, 2 * width));
  MILLRACE_TRY(made->head_, loader.optional_matrix(prefix + "nextn.shared_head_head.weight", spec.vocab, width));
  MILLRACE_TRY_VOID(made->load_layer(prefix));
  std::vector<Weight*> all = {&made->join_};
  if (made->head_.present()) all.push_back(&made->head_);
  add_matrices(made->layer_, all);
  for (const Weight* weight : all)
    if (weight->parts || weight->codebook)
      return Error::unsupported(
          fmt::format("{}: tensor {}: a layer that drafts cannot have weight parts", made->files_->path, weight->name));
  MILLRACE_TRY_VOID(made->weights_.pack(*made->files_, all, table, pool, std::move(accounts)));
  return made;
}

Result<void> MtpLayer::load_layer(const std::string& prefix) {
  WeightLoader loader(*files_, *find_arch(*files_));
  if (numbered_apart_)
    loader.replace_prefix(fmt::format("model.layers.{}.", target_.spec().layer_count()), "mtp.layers.0.");
  LayerSpec& sizes = spec_.layers[0];
  MILLRACE_TRY(layer_.attention_norm.scale, loader.vector(prefix + "attn_norm.weight", spec_.width));
  MILLRACE_TRY(layer_.mlp_norm.scale, loader.vector(prefix + "ffn_norm.weight", spec_.width));
  MILLRACE_TRY_VOID(load_mixers(loader, prefix, spec_, sizes, layer_));
  if (!sizes.moe) return load_mlp(loader, spec_, prefix, sizes.hidden, layer_);
  MILLRACE_TRY(sizes.experts.selection_bias,
               loader.optional_vector(prefix + "exp_probs_b.bias", sizes.experts.experts));
  return load_moe(loader, files_->path, spec_, prefix, sizes.experts, layer_);
}

int64_t MtpLayer::scratch_bytes(int64_t tokens) const {
  const int64_t cols = 2 * spec_.width;
  return (4 * tokens * cols + 63) / 64 * 64 + tokens * widest_mtp_row(cols);
}

// The norm of the residual, rounded for `first`.
ActivationRows MtpLayer::normed_for(const NormWeights& norm, const Weight& first, int64_t tokens,
                                    ForwardContext& context) const {
  const KernelTable& kernels = context.kernels();
  const float* residual = context.residual.as<float>();
  float* normed = context.normed.as<float>();
  const ActivationRows rows = activation_rows(first.format->activation, tokens, spec_.width, context.encoded.data());
  for_rows(context, tokens, 2 * spec_.width, [&](int64_t t) {
    norm_row(spec_, norm, kernels, residual + t * spec_.width, normed + t * spec_.width);
    encode_row(kernels, rows, t, normed + t * spec_.width, context.encoded.data());
  });
  return rows;
}

void MtpLayer::add_out(int64_t tokens, ForwardContext& context) const {
  for_rows(context, tokens, spec_.width, [&](int64_t t) {
    context.kernels().add(context.block_out.as<float>() + t * spec_.width,
                          context.residual.as<float>() + t * spec_.width, spec_.width);
  });
}

void MtpLayer::forward(const Batch& batch, const float* features, uint8_t* scratch, ForwardContext& context) const {
  const int64_t tokens = batch.size(), width = spec_.width, cols = 2 * width;
  const KernelTable& kernels = context.kernels();
  auto* wide = reinterpret_cast<float*>(scratch);
  uint8_t* rounded = scratch + (4 * tokens * cols + 63) / 64 * 64;
  float* residual = context.residual.as<float>();
  for_rows(context, tokens, 2 * cols, [&](int64_t t) {
    float* row = wide + t * cols;
    target_.embedding(batch.tokens[static_cast<size_t>(t)], row);
    norm_row(spec_, token_norm_, kernels, row, row);
    norm_row(spec_, feature_norm_, kernels, features + t * width, row + width);
    fill_rope_row(spec_, rope_frequencies_, rope_scales_, batch.positions[static_cast<size_t>(t)], t, context);
  });
  static const std::vector<float> kNoBias;
  project(context, wide,
          encode_activations(kernels, context.pool(), join_.format->activation, wide, cols, tokens, cols, rounded),
          {{LinearId{}, join_, kNoBias, residual}});
  const LayerSpec& layer = spec_.layers[0];
  const MixerCall call{spec_, layer, 0, layer_, batch, context};
  begin_mixers(call, normed_for(layer_.attention_norm, first_matrix(layer, layer_), tokens, context));
  finish_mixers(call);
  add_out(tokens, context);
  const ActivationRows y = normed_for(layer_.mlp_norm, layer.moe ? layer_.router : layer_.mlp.up, tokens, context);
  if (layer.moe)
    moe_block(spec_, layer.experts, LinearId{.layer = 0}, layer_, y, context);
  else
    mlp_block(spec_, LinearId{.layer = 0}, layer_.mlp, layer.hidden, y, context);
  add_out(tokens, context);
  for_rows(context, tokens, width,
           [&](int64_t t) { norm_row(spec_, output_norm_, kernels, residual + t * width, residual + t * width); });
}

void MtpLayer::head(std::span<const int32_t> rows, ForwardContext& context) const {
  if (rows.empty()) return;
  const int64_t width = spec_.width, count = std::ssize(rows);
  const Weight& head = head_.present() ? head_ : target_.head();
  float* chosen = context.normed.as<float>();
  for (int64_t i = 0; i < count; ++i)
    std::copy_n(context.residual.as<float>() + rows[static_cast<size_t>(i)] * width, width, chosen + i * width);
  const ActivationRows x = encode_activations(context.kernels(), context.pool(), head.format->activation, chosen, width,
                                              count, width, context.encoded.data());
  static const std::vector<float> kNoBias;
  project(context, chosen, x, {{LinearId{}, head, kNoBias, context.logits.as<float>()}});
}

}  // namespace millrace
