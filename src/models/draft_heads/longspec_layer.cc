#include "models/draft_heads/longspec_layer.h"

#include <fmt/format.h>

#include "models/blocks/blocks.h"
#include "models/draft_heads/model_head.h"
#include "models/layer_mixers.h"
#include "models/weight_loader.h"

namespace millrace {
namespace {

constexpr int64_t kLongspecWindow = 512;  // tokens before the one that sees them

const std::vector<TensorName> kLongspecNames = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"cross_norm.weight", "post_self_attention_layernorm.weight"},
    {"cross_q.weight", "cross_attn.q_proj.weight"},
    {"cross_q.bias", "cross_attn.q_proj.bias"},
    {"cross_output.weight", "cross_attn.o_proj.weight"},
    {"ffn_norm.weight", "post_cross_attention_layernorm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
};
const Arch kLongspecParts = {
    .name = "longspec", .huggingface_type = "", .summary = "", .paper = "", .names = kLongspecNames};

}  // namespace

Result<std::unique_ptr<LongspecLayer>> LongspecLayer::load(const std::string& path, const Model& target,
                                                           const KernelTable& table, ThreadPool& pool, int64_t context,
                                                           std::shared_ptr<MemoryAccounts> accounts) {
  auto made = std::unique_ptr<LongspecLayer>(new LongspecLayer(target));
  MILLRACE_TRY(made->files_, open_draft_files(path));
  MILLRACE_TRY(made->ropes_, read_draft_config(*made->files_, target.spec(), context, made->spec_, true));
  ConfigReader config(*made->files_->config, made->files_->path + "/config.json");
  made->spec_.layers[0].window = 1 + config.count_or("draft_window", kLongspecWindow, 1, 1 << 24);
  MILLRACE_TRY_VOID(config.status());
  made->spec_.arch = "longspec";
  MILLRACE_TRY_VOID(made->check_target());
  MILLRACE_TRY_VOID(made->load_weights(table, pool, std::move(accounts)));
  return made;
}

Result<void> LongspecLayer::check_target() const {
  const LayerSpec &own = spec_.layers[0], &last = target_.spec().layers.back();
  if (!keeps(last, StateKind::keys) || last.window > 0)
    return Error::unsupported(
        fmt::format("{}: attends to the keys and values of the model's last layer, and this model's does not have "
                    "those of all tokens",
                    files_->path));
  if (own.heads == last.heads && own.kv_heads == last.kv_heads && own.head_dim == last.head_dim) return {};
  return Error::user(fmt::format("{}: {} heads of {} numbers, {} of keys; the model's last layer has {} of {}, and {}",
                                 files_->path, own.heads, own.head_dim, own.kv_heads, last.heads, last.head_dim,
                                 last.kv_heads));
}

Result<void> LongspecLayer::load_weights(const KernelTable& table, ThreadPool& pool,
                                         std::shared_ptr<MemoryAccounts> accounts) {
  WeightLoader loader(*files_, kLongspecParts);
  const LayerSpec& sizes = spec_.layers[0];
  const int64_t width = spec_.width, q = sizes.heads * sizes.head_dim, kv = sizes.kv_heads * sizes.head_dim;
  MILLRACE_TRY(layer_.attention_norm.scale, loader.vector("attn_norm.weight", width));
  MILLRACE_TRY(layer_.q, loader.matrix("attn_q.weight", q, width));
  MILLRACE_TRY(layer_.k, loader.matrix("attn_k.weight", kv, width));
  MILLRACE_TRY(layer_.v, loader.matrix("attn_v.weight", kv, width));
  MILLRACE_TRY(layer_.q_bias, loader.optional_vector("attn_q.bias", q));
  MILLRACE_TRY(layer_.k_bias, loader.optional_vector("attn_k.bias", kv));
  MILLRACE_TRY(layer_.v_bias, loader.optional_vector("attn_v.bias", kv));
  MILLRACE_TRY(layer_.output, loader.matrix("attn_output.weight", width, q));
  MILLRACE_TRY(cross_.attention_norm.scale, loader.vector("cross_norm.weight", width));
  MILLRACE_TRY(cross_.q, loader.matrix("cross_q.weight", q, width));
  MILLRACE_TRY(cross_.q_bias, loader.optional_vector("cross_q.bias", q));
  MILLRACE_TRY(cross_.output, loader.matrix("cross_output.weight", width, q));
  MILLRACE_TRY(layer_.mlp_norm.scale, loader.vector("ffn_norm.weight", width));
  MILLRACE_TRY(layer_.mlp.gate, loader.matrix("ffn_gate.weight", sizes.hidden, width));
  MILLRACE_TRY(layer_.mlp.up, loader.matrix("ffn_up.weight", sizes.hidden, width));
  MILLRACE_TRY(layer_.mlp.down, loader.matrix("ffn_down.weight", width, sizes.hidden));
  MILLRACE_TRY_VOID(check_draft_formats(*files_, layer_.q, {&layer_.k, &layer_.v}));
  MILLRACE_TRY_VOID(check_draft_formats(*files_, layer_.mlp.up, {&layer_.mlp.gate}));
  Weight* const all[] = {&layer_.q,      &layer_.k,        &layer_.v,      &layer_.output,  &cross_.q,
                         &cross_.output, &layer_.mlp.gate, &layer_.mlp.up, &layer_.mlp.down};
  return weights_.pack(*files_, all, table, pool, std::move(accounts));
}

void LongspecLayer::store(const Batch& batch, ForwardContext& context) const {
  const int64_t tokens = batch.size(), width = spec_.width;
  const KernelTable& kernels = context.kernels();
  float* residual = context.residual.as<float>();
  float* normed = context.normed.as<float>();
  const ActivationRows x = activation_rows(layer_.q.format->activation, tokens, width, context.encoded.data());
  for_rows(context, tokens, 3 * width, [&](int64_t t) {
    target_.embedding(batch.tokens[static_cast<size_t>(t)], residual + t * width);
    fill_rope_row(spec_, ropes_.frequencies, ropes_.scales, batch.positions[static_cast<size_t>(t)], t, context);
    norm_row(spec_, layer_.attention_norm, kernels, residual + t * width, normed + t * width);
    encode_row(kernels, x, t, normed + t * width, context.encoded.data());
  });
  attention_keys(spec_, spec_.layers[0], 0, layer_, batch, x, context);
}

// Of the last block's output and the residual.
ActivationRows LongspecLayer::add_and_norm(const NormWeights& norm, const Weight& next, int64_t tokens,
                                           ForwardContext& context) const {
  const int64_t width = spec_.width;
  const KernelTable& kernels = context.kernels();
  float* residual = context.residual.as<float>();
  float* normed = context.normed.as<float>();
  const ActivationRows x = activation_rows(next.format->activation, tokens, width, context.encoded.data());
  for_rows(context, tokens, 3 * width, [&](int64_t t) {
    kernels.add(context.block_out.as<float>() + t * width, residual + t * width, width);
    norm_row(spec_, norm, kernels, residual + t * width, normed + t * width);
    encode_row(kernels, x, t, normed + t * width, context.encoded.data());
  });
  return x;
}

void LongspecLayer::cross(const Batch& batch, const Batch& crossing, ForwardContext& context) const {
  const int64_t tokens = batch.size(), width = spec_.width;
  const LayerSpec& layer = spec_.layers[0];
  store(batch, context);
  attention_block(spec_, layer, 0, layer_, batch, context);
  const ActivationRows x = add_and_norm(cross_.attention_norm, cross_.q, tokens, context);
  cross_attention_block(spec_, layer, target_.spec().layer_count() - 1, cross_, crossing, x, context);
  const ActivationRows y = add_and_norm(layer_.mlp_norm, layer_.mlp.up, tokens, context);
  mlp_block(spec_, LinearId{.layer = 0}, layer_.mlp, layer.hidden, y, context);
  for_rows(context, tokens, width, [&](int64_t t) {
    context.kernels().add(context.block_out.as<float>() + t * width, context.residual.as<float>() + t * width, width);
  });
}

void LongspecLayer::head(std::span<const int32_t> rows, ForwardContext& context) const {
  model_head(target_, spec_, {}, rows, context);
}

}  // namespace millrace
