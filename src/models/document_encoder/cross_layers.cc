#include "models/document_encoder/cross_layers.h"

#include <fmt/format.h>

#include <cmath>

#include "models/arch/common.h"
#include "models/blocks/blocks.h"
#include "models/document_encoder/document_encoder.h"
#include "models/layer_mixers.h"
#include "models/weight_loader.h"

namespace millrace {
namespace {

const std::vector<TensorName> kCrossNames = {
    {"blk.{l}.attn_norm.weight", "model.layers.{l}.cross_attn.layernorm.weight"},
    {"blk.{l}.attn_q.weight", "model.layers.{l}.cross_attn.q_proj.weight"},
    {"blk.{l}.attn_k.weight", "model.layers.{l}.cross_attn.k_proj.weight"},
    {"blk.{l}.attn_v.weight", "model.layers.{l}.cross_attn.v_proj.weight"},
    {"blk.{l}.attn_output.weight", "model.layers.{l}.cross_attn.o_proj.weight"},
};
const Arch kCrossParts = {.name = "cepe", .huggingface_type = "", .summary = "", .paper = "", .names = kCrossNames};

// What the published code can be configured to, and is not done here.
Result<void> check_encoding(ConfigReader& config) {
  const std::string mode = config.text_or("encode_mode", "context_only");
  const int64_t states = config.count_or("num_cross_attn_hidden_states", 1, 1, kMaxLayers);
  const bool itself = config.flag_or("encoder_is_model", false);
  const bool crosses = config.flag_or("do_cross_attention", true);
  MILLRACE_TRY_VOID(config.status());
  if (!crosses)
    return Error::unsupported(
        fmt::format("{}: do_cross_attention is off: there is nothing to read documents with", config.source()));
  if (mode != "context_only")
    return Error::unsupported(
        fmt::format("{}: encode_mode '{}': documents are encoded alone (context_only)", config.source(), mode));
  if (states != 1)
    return Error::unsupported(
        fmt::format("{}: num_cross_attn_hidden_states {}: the encoder's last hidden states only are read",
                    config.source(), states));
  if (itself)
    return Error::unsupported(fmt::format("{}: encoder_is_model: an encoder of its own is needed", config.source()));
  return {};
}

}  // namespace

Result<std::unique_ptr<CrossLayers>> CrossLayers::load(std::shared_ptr<const ModelFiles> files, const ArchSpec& target,
                                                       int64_t encoder_width, const KernelTable& table,
                                                       ThreadPool& pool, std::shared_ptr<MemoryAccounts> accounts) {
  auto made = std::unique_ptr<CrossLayers>(new CrossLayers());
  made->files_ = std::move(files);
  MILLRACE_TRY_VOID(made->read_config(target));
  MILLRACE_TRY_VOID(made->load_weights(encoder_width, table, pool, std::move(accounts)));
  return made;
}

Result<void> CrossLayers::read_config(const ArchSpec& target) {
  ConfigReader config(*files_->config, files_->path + "/config.json");
  ArchSpec decoder;
  read_common_huggingface(config, decoder);
  const int64_t count = config.count("num_cross_attn_layers", 1, kMaxLayers);
  MILLRACE_TRY_VOID(config.status());
  MILLRACE_TRY_VOID(check_encoding(config));
  if (decoder.width != target.width || decoder.layer_count() != target.layer_count())
    return Error::user(
        fmt::format("{}: reads documents for a model of {} layers of width {}; this one has {} layers of width {}",
                    files_->path, decoder.layer_count(), decoder.width, target.layer_count(), target.width));
  if (count > decoder.layer_count())
    return Error::corrupt(
        fmt::format("{}: num_cross_attn_layers: {} of {} layers", config.source(), count, decoder.layer_count()));
  if (!(decoder.norm_eps >= 0.0f && decoder.norm_eps < 1.0f))
    return Error::corrupt(fmt::format("{}: norm epsilon {}", config.source(), decoder.norm_eps));
  first_layer_ = decoder.layer_count() - count;
  spec_.arch = "cepe";
  spec_.vocab = 1;  // no head
  spec_.width = decoder.width;
  spec_.heads = decoder.heads;
  spec_.kv_heads = decoder.kv_heads;
  spec_.head_dim = decoder.head_dim;
  spec_.norm_eps = decoder.norm_eps;
  spec_.attention_scale = 1.0f / std::sqrt(static_cast<float>(spec_.head_dim));
  spec_.layers.assign(static_cast<size_t>(count), LayerSpec{.rope = -1, .mlp = false});
  for (LayerSpec& layer : spec_.layers) {
    set_own_sizes(spec_, layer);
    if (const std::string problem = mixers_problem(spec_, layer); !problem.empty())
      return Error::corrupt(fmt::format("{}: {}", config.source(), problem));
  }
  return {};
}

Result<void> CrossLayers::load_weights(int64_t encoder_width, const KernelTable& table, ThreadPool& pool,
                                       std::shared_ptr<MemoryAccounts> accounts) {
  encoder_width_ = encoder_width;
  WeightLoader loader(*files_, kCrossParts);
  const int64_t width = spec_.width, q = spec_.heads * spec_.head_dim, kv = spec_.kv_heads * spec_.head_dim;
  layers_.resize(spec_.layers.size());
  std::vector<Weight*> all;
  for (size_t i = 0; i < layers_.size(); ++i) {
    LayerWeights& layer = layers_[i];
    const std::string prefix = fmt::format("blk.{}.", first_layer_ + static_cast<int64_t>(i));
    MILLRACE_TRY(layer.attention_norm.scale, loader.vector(prefix + "attn_norm.weight", width));
    MILLRACE_TRY(layer.q, loader.matrix(prefix + "attn_q.weight", q, width));
    MILLRACE_TRY(layer.k, loader.matrix(prefix + "attn_k.weight", kv, encoder_width));
    MILLRACE_TRY(layer.v, loader.matrix(prefix + "attn_v.weight", kv, encoder_width));
    MILLRACE_TRY(layer.output, loader.matrix(prefix + "attn_output.weight", width, q));
    MILLRACE_TRY_VOID(check_draft_formats(*files_, layers_[0].k, {&layer.k, &layer.v}));
    all.insert(all.end(), {&layer.q, &layer.k, &layer.v, &layer.output});
  }
  return weights_.pack(*files_, all, table, pool, std::move(accounts), kEncoderAccount, kEncoderAdvice);
}

int64_t CrossLayers::scratch_floats(int64_t tokens) const { return 2 * tokens * spec_.kv_heads * spec_.head_dim; }

void CrossLayers::store(const float* hidden, int64_t tokens, std::span<const BlockId> blocks, KvPool& kv,
                        float* scratch, ForwardContext& encoder) const {
  const int64_t kv_heads = spec_.kv_heads, head_dim = spec_.head_dim, kv_width = kv_heads * head_dim;
  const int64_t block_tokens = kv.layout().block_tokens;
  const KernelTable& kernels = encoder.kernels();
  const RowCodec& key_codec = *kernels.find_codec(kv.layout().format);
  const RowCodec& value_codec = *kernels.find_codec(kv.layout().values());
  const ActivationRows x = encode_activations(kernels, encoder.pool(), layers_[0].k.format->activation, hidden,
                                              encoder_width_, tokens, encoder_width_, encoder.encoded.data());
  static const std::vector<float> kNoBias;
  float* keys = scratch;
  float* values = scratch + tokens * kv_width;
  for (int64_t i = 0; i < spec_.layer_count(); ++i) {
    const LayerWeights& layer = layers_[static_cast<size_t>(i)];
    const LinearId at{.layer = static_cast<int32_t>(i)};
    project(encoder, hidden, x,
            {{at.of(LinearKind::k), layer.k, kNoBias, keys}, {at.of(LinearKind::v), layer.v, kNoBias, values}});
    for_rows(encoder, tokens, 2 * kv_width, [&](int64_t t) {
      const BlockId block = blocks[static_cast<size_t>(t / block_tokens)];
      const int64_t within = t % block_tokens;
      for (int64_t h = 0; h < kv_heads; ++h) {
        key_codec.encode(keys + t * kv_width + h * head_dim, kv.keys(i, block, h) + within * kv.row_bytes(i), head_dim);
        value_codec.encode(values + t * kv_width + h * head_dim,
                           kv.values(i, block, h) + within * kv.value_row_bytes(i), head_dim);
      }
    });
  }
}

void CrossLayers::run(int64_t layer, std::span<const int32_t> rows, float* residual, const Batch& batch,
                      ForwardContext& context) const {
  const int64_t own = layer - first_layer_, tokens = std::ssize(rows), width = spec_.width;
  const LayerWeights& weights = layers_[static_cast<size_t>(own)];
  const KernelTable& kernels = context.kernels();
  float* normed = context.normed.as<float>();
  const auto row = [&](int64_t t) { return residual + rows[static_cast<size_t>(t)] * width; };
  const ActivationRows x = activation_rows(weights.q.format->activation, tokens, width, context.encoded.data());
  for_rows(context, tokens, 2 * width, [&](int64_t t) {
    norm_row(spec_, weights.attention_norm, kernels, row(t), normed + t * width);
    encode_row(kernels, x, t, normed + t * width, context.encoded.data());
  });
  cross_attention_block(spec_, spec_.layers[static_cast<size_t>(own)], own, weights, batch, x, context);
  for_rows(context, tokens, width,
           [&](int64_t t) { kernels.add(context.block_out.as<float>() + t * width, row(t), width); });
}

}  // namespace millrace
