#include "models/draft_heads/exit_adapter.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/blocks/blocks.h"
#include "models/draft_heads/model_head.h"
#include "models/weight_loader.h"

namespace millrace {
namespace {

const std::vector<TensorName> kAdapterNames = {
    {"output_norm.weight", "norm.weight"},
    {"blk.{l}.attn_norm.weight", "layers.{l}.input_layernorm.weight"},
    {"blk.{l}.attn_q.weight", "layers.{l}.self_attn.q_proj.weight"},
    {"blk.{l}.attn_k.weight", "layers.{l}.self_attn.k_proj.weight"},
    {"blk.{l}.attn_v.weight", "layers.{l}.self_attn.v_proj.weight"},
    {"blk.{l}.attn_output.weight", "layers.{l}.self_attn.o_proj.weight"},
};
const Arch kAdapterParts = {
    .name = "kangaroo", .huggingface_type = "", .summary = "", .paper = "", .names = kAdapterNames};

}  // namespace

Result<std::unique_ptr<ExitAdapter>> ExitAdapter::load(const std::string& path, int64_t exit, const Model& target,
                                                       const KernelTable& table, ThreadPool& pool, int64_t context,
                                                       std::shared_ptr<MemoryAccounts> accounts) {
  auto made = std::unique_ptr<ExitAdapter>(new ExitAdapter(target));
  MILLRACE_TRY(made->files_, open_draft_files(path));
  MILLRACE_TRY(made->ropes_, read_draft_config(*made->files_, target.spec(), context, made->spec_));
  if (exit < 1 || exit >= target.spec().layer_count())
    return Error::user(
        fmt::format("exit: {} layers before the adapter; the model has {}", exit, target.spec().layer_count()));
  made->exit_ = exit;
  made->spec_.arch = "kangaroo";
  made->spec_.layers[0].mlp = false;
  MILLRACE_TRY_VOID(made->load_weights(table, pool, std::move(accounts)));
  return made;
}

Result<void> ExitAdapter::load_weights(const KernelTable& table, ThreadPool& pool,
                                       std::shared_ptr<MemoryAccounts> accounts) {
  WeightLoader loader(*files_, kAdapterParts);
  const LayerSpec& sizes = spec_.layers[0];
  const int64_t width = spec_.width, q = sizes.heads * sizes.head_dim, kv = sizes.kv_heads * sizes.head_dim;
  MILLRACE_TRY(layer_.attention_norm.scale, loader.vector("blk.0.attn_norm.weight", width));
  MILLRACE_TRY(output_norm_.scale, loader.vector("output_norm.weight", width));
  MILLRACE_TRY(layer_.q, loader.matrix("blk.0.attn_q.weight", q, width));
  MILLRACE_TRY(layer_.k, loader.matrix("blk.0.attn_k.weight", kv, width));
  MILLRACE_TRY(layer_.v, loader.matrix("blk.0.attn_v.weight", kv, width));
  MILLRACE_TRY(layer_.output, loader.matrix("blk.0.attn_output.weight", width, q));
  MILLRACE_TRY_VOID(check_draft_formats(*files_, layer_.q, {&layer_.k, &layer_.v}));
  Weight* const all[] = {&layer_.q, &layer_.k, &layer_.v, &layer_.output};
  return weights_.pack(*files_, all, table, pool, std::move(accounts));
}

std::string ExitAdapter::identity() const {
  return fmt::format("{}behind {} layers\n", draft_identity(*files_), exit_);
}

void ExitAdapter::store(const Batch& batch, const float* rows, ForwardContext& context) const {
  const int64_t tokens = batch.size(), width = spec_.width;
  const KernelTable& kernels = context.kernels();
  float* residual = context.residual.as<float>();
  float* normed = context.normed.as<float>();
  const ActivationRows x = activation_rows(layer_.q.format->activation, tokens, width, context.encoded.data());
  for_rows(context, tokens, 3 * width, [&](int64_t t) {
    std::copy_n(rows + t * width, width, residual + t * width);
    fill_rope_row(spec_, ropes_.frequencies, ropes_.scales, batch.positions[static_cast<size_t>(t)], t, context);
    norm_row(spec_, layer_.attention_norm, kernels, residual + t * width, normed + t * width);
    encode_row(kernels, x, t, normed + t * width, context.encoded.data());
  });
  attention_keys(spec_, spec_.layers[0], 0, layer_, batch, x, context);
}

void ExitAdapter::forward(const Batch& batch, const float* rows, ForwardContext& context) const {
  store(batch, rows, context);
  attention_block(spec_, spec_.layers[0], 0, layer_, batch, context);
  const int64_t width = spec_.width;
  for_rows(context, batch.size(), width, [&](int64_t t) {
    context.kernels().add(context.block_out.as<float>() + t * width, context.residual.as<float>() + t * width, width);
  });
}

void ExitAdapter::head(std::span<const int32_t> rows, ForwardContext& context) const {
  model_head(target_, spec_, output_norm_, rows, context);
}

}  // namespace millrace
