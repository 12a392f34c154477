#include "models/draft_heads/eagle_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/activation.h"
#include "models/arch/common.h"
#include "models/blocks/blocks.h"
#include "models/draft_heads/model_head.h"
#include "models/weight_loader.h"

namespace millrace {
namespace {

const std::vector<TensorName> kFirstNames = {{"fc.weight", "fc.weight"}, {"fc.bias", "fc.bias"}};
const std::vector<TensorName> kThirdNames = {
    {"fc.weight", "fc.weight"},
    {"fc.bias", "fc.bias"},
    {"feature_norm.weight", "midlayer.hidden_norm.weight"},
    {"output_norm.weight", "norm.weight"},
    {"blk.{l}.attn_norm.weight", "midlayer.input_layernorm.weight"},
    {"blk.{l}.attn_q.weight", "midlayer.self_attn.q_proj.weight"},
    {"blk.{l}.attn_k.weight", "midlayer.self_attn.k_proj.weight"},
    {"blk.{l}.attn_v.weight", "midlayer.self_attn.v_proj.weight"},
    {"blk.{l}.attn_output.weight", "midlayer.self_attn.o_proj.weight"},
    {"blk.{l}.attn_q.bias", "midlayer.self_attn.q_proj.bias"},
    {"blk.{l}.attn_k.bias", "midlayer.self_attn.k_proj.bias"},
    {"blk.{l}.attn_v.bias", "midlayer.self_attn.v_proj.bias"},
    {"blk.{l}.ffn_norm.weight", "midlayer.post_attention_layernorm.weight"},
    {"blk.{l}.ffn_gate.weight", "midlayer.mlp.gate_proj.weight"},
    {"blk.{l}.ffn_up.weight", "midlayer.mlp.up_proj.weight"},
    {"blk.{l}.ffn_down.weight", "midlayer.mlp.down_proj.weight"},
};
const Arch kFirstEagle = {.name = "eagle", .huggingface_type = "", .summary = "", .paper = "", .names = kFirstNames};
const Arch kThirdEagle = {.name = "eagle3", .huggingface_type = "", .summary = "", .paper = "", .names = kThirdNames};

int64_t widest_eagle_row(int64_t cols) {
  int64_t bytes = 0;
  for (Activation kind : kActivations) bytes = std::max(bytes, activation_row_bytes(kind, cols));
  return bytes;
}

}  // namespace

Result<std::unique_ptr<EagleLayer>> EagleLayer::load(const std::string& path, const Model& target,
                                                     const KernelTable& table, ThreadPool& pool, int64_t context,
                                                     std::shared_ptr<MemoryAccounts> accounts) {
  auto made = std::unique_ptr<EagleLayer>(new EagleLayer(target));
  MILLRACE_TRY(made->files_, open_draft_files(path));
  made->table_ = &table;
  made->third_ = has_tensor(*made->files_, "midlayer.hidden_norm.weight");
  MILLRACE_TRY_VOID(made->read_config(context));
  MILLRACE_TRY_VOID(made->load_weights(table, pool, std::move(accounts)));
  return made;
}

Result<void> EagleLayer::read_config(int64_t context) {
  const ArchSpec& model = target_.spec();
  MILLRACE_TRY(ropes_, read_draft_config(*files_, model, context, spec_));
  spec_.arch = third_ ? "eagle3" : "eagle";
  if (!third_) return {};
  ConfigReader config(*files_->config, files_->path + "/config.json");
  const int64_t draft_vocab = config.count_or("draft_vocab_size", 0, 0, kMaxVocab);
  MILLRACE_TRY_VOID(config.status());
  if (model.layer_count() < 4)
    return Error::unsupported(fmt::format("{}: takes features before layers 2, n / 2 and n - 3, this model has {}",
                                          files_->path, model.layer_count()));
  taps_ = {2, model.layer_count() / 2, model.layer_count() - 3};
  if (draft_vocab > 0) spec_.vocab = draft_vocab;
  return {};
}

Result<void> EagleLayer::load_weights(const KernelTable& table, ThreadPool& pool,
                                      std::shared_ptr<MemoryAccounts> accounts) {
  WeightLoader loader(*files_, third_ ? kThirdEagle : kFirstEagle);
  const LayerSpec& sizes = spec_.layers[0];
  const int64_t width = spec_.width, q = sizes.heads * sizes.head_dim, kv = sizes.kv_heads * sizes.head_dim;
  const int64_t read = third_ ? 2 * width : width;  // by attention
  MILLRACE_TRY(join_, loader.matrix("fc.weight", width, third_ ? 3 * width : 2 * width));
  MILLRACE_TRY(join_bias_, loader.optional_vector("fc.bias", width));
  MILLRACE_TRY(layer_.q, loader.matrix("blk.0.attn_q.weight", q, read));
  MILLRACE_TRY(layer_.k, loader.matrix("blk.0.attn_k.weight", kv, read));
  MILLRACE_TRY(layer_.v, loader.matrix("blk.0.attn_v.weight", kv, read));
  MILLRACE_TRY(layer_.q_bias, loader.optional_vector("blk.0.attn_q.bias", q));
  MILLRACE_TRY(layer_.k_bias, loader.optional_vector("blk.0.attn_k.bias", kv));
  MILLRACE_TRY(layer_.v_bias, loader.optional_vector("blk.0.attn_v.bias", kv));
  MILLRACE_TRY(layer_.output, loader.matrix("blk.0.attn_output.weight", width, q));
  MILLRACE_TRY(layer_.mlp_norm.scale, loader.vector("blk.0.ffn_norm.weight", width));
  MILLRACE_TRY(layer_.mlp.gate, loader.matrix("blk.0.ffn_gate.weight", sizes.hidden, width));
  MILLRACE_TRY(layer_.mlp.up, loader.matrix("blk.0.ffn_up.weight", sizes.hidden, width));
  MILLRACE_TRY(layer_.mlp.down, loader.matrix("blk.0.ffn_down.weight", width, sizes.hidden));
  MILLRACE_TRY_VOID(check_draft_formats(*files_, layer_.q, {&layer_.k, &layer_.v}));
  MILLRACE_TRY_VOID(check_draft_formats(*files_, layer_.mlp.up, {&layer_.mlp.gate}));
  std::vector<Weight*> all = {&join_,         &layer_.q,        &layer_.k,      &layer_.v,
                              &layer_.output, &layer_.mlp.gate, &layer_.mlp.up, &layer_.mlp.down};
  if (third_) {
    MILLRACE_TRY(layer_.attention_norm.scale, loader.vector("blk.0.attn_norm.weight", width));
    MILLRACE_TRY(feature_norm_.scale, loader.vector("feature_norm.weight", width));
    MILLRACE_TRY(output_norm_.scale, loader.vector("output_norm.weight", width));
    MILLRACE_TRY(head_, loader.matrix("output.weight", spec_.vocab, width));
    MILLRACE_TRY_VOID(load_vocabulary());
    all.push_back(&head_);
  }
  return weights_.pack(*files_, all, table, pool, std::move(accounts));
}

Result<void> EagleLayer::load_vocabulary() {
  const int64_t own = spec_.vocab, model = target_.spec().vocab;
  const StoredTensor* stored = files_->find("d2t");
  if (!stored) {
    if (own == model) return {};
    return Error::corrupt(fmt::format("{}: tensor d2t is missing; the draft vocabulary has {} tokens, the model {}",
                                      files_->path, own, model));
  }
  if (stored->type_name != "I64" || stored->tensor.rank != 1 || stored->tensor.dims[0] != own ||
      stored->tensor.bytes != 8 * own)
    return Error::corrupt(fmt::format("{}: tensor d2t must be {} numbers of type I64", files_->path, own));
  ids_.resize(static_cast<size_t>(own));
  for (int64_t i = 0; i < own; ++i) {
    int64_t offset = 0;
    std::memcpy(&offset, stored->tensor.data + 8 * i, 8);
    if (offset < -i || offset >= model - i)
      return Error::corrupt(fmt::format("{}: tensor d2t: draft token {} would be token {} + {} of {}", files_->path, i,
                                        i, offset, model));
    ids_[static_cast<size_t>(i)] = static_cast<int32_t>(i + offset);
  }
  return {};
}

// Wide rows, and the same rounded.
int64_t EagleLayer::scratch_bytes(int64_t tokens) const {
  const int64_t cols = (third_ ? 3 : 2) * spec_.width;
  return (4 * tokens * cols + 63) / 64 * 64 + tokens * widest_eagle_row(cols);
}

void EagleLayer::join(const float* taps, int64_t tokens, uint8_t* scratch, ThreadPool& pool, float* features) const {
  const int64_t cols = 3 * spec_.width;
  uint8_t* rounded = scratch + (4 * tokens * cols + 63) / 64 * 64;
  linear(pool, join_, encode_activations(*table_, pool, join_.format->activation, taps, cols, tokens, cols, rounded),
         features, spec_.width);
  for (int64_t t = 0; t < tokens && !join_bias_.empty(); ++t)
    table_->add(join_bias_.data(), features + t * spec_.width, spec_.width);
}

void EagleLayer::forward(const Batch& batch, const float* features, uint8_t* scratch, ForwardContext& context) const {
  const int64_t tokens = batch.size(), width = spec_.width, cols = 2 * width;
  const KernelTable& kernels = context.kernels();
  auto* wide = reinterpret_cast<float*>(scratch);
  uint8_t* rounded = scratch + (4 * tokens * cols + 63) / 64 * 64;
  float* residual = context.residual.as<float>();
  float* normed = context.normed.as<float>();
  const float* out = context.block_out.as<float>();
  for_rows(context, tokens, 2 * cols, [&](int64_t t) {
    float* row = wide + t * cols;
    const float* feature = features + t * width;
    target_.embedding(batch.tokens[static_cast<size_t>(t)], row);
    std::copy_n(feature, width, row + width);
    fill_rope_row(spec_, ropes_.frequencies, ropes_.scales, batch.positions[static_cast<size_t>(t)], t, context);
    if (!third_) return;
    std::copy_n(feature, width, residual + t * width);
    norm_row(spec_, layer_.attention_norm, kernels, row, row);
    norm_row(spec_, feature_norm_, kernels, row + width, row + width);
  });
  const Weight& first = third_ ? layer_.q : join_;
  ActivationRows x =
      encode_activations(kernels, context.pool(), first.format->activation, wide, cols, tokens, cols, rounded);
  if (!third_) {
    project(context, wide, x, {{LinearId{}, join_, join_bias_, residual}});
    x = encode_activations(kernels, context.pool(), layer_.q.format->activation, residual, width, tokens, width,
                           context.encoded.data());
  }
  const LayerSpec& layer = spec_.layers[0];
  attention_keys(spec_, layer, 0, layer_, batch, x, context);
  attention_block(spec_, layer, 0, layer_, batch, context);
  const ActivationRows y = activation_rows(layer_.mlp.up.format->activation, tokens, width, context.encoded.data());
  for_rows(context, tokens, 3 * width, [&](int64_t t) {
    kernels.add(out + t * width, residual + t * width, width);
    norm_row(spec_, layer_.mlp_norm, kernels, residual + t * width, normed + t * width);
    encode_row(kernels, y, t, normed + t * width, context.encoded.data());
  });
  mlp_block(spec_, LinearId{.layer = 0}, layer_.mlp, layer.hidden, y, context);
  for_rows(context, tokens, width, [&](int64_t t) { kernels.add(out + t * width, residual + t * width, width); });
}

void EagleLayer::head(std::span<const int32_t> rows, ForwardContext& context) const {
  if (third_)
    draft_head(spec_, output_norm_, head_, rows, context);
  else
    model_head(target_, spec_, output_norm_, rows, context);
}

}  // namespace millrace
