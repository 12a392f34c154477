#include "train/story_model.h"

#include <cmath>
#include <limits>
#include <string>

#include "train/fast_ops.h"

namespace millrace {
namespace {

constexpr uint64_t kOddStep = 0x9e3779b97f4a7c15ull;  // spreads consecutive seeds over all 64 bits

}  // namespace

int64_t StoryModelConfig::parameters() const {
  const int64_t kv = kv_heads * head_dim();
  const int64_t layer = 2 * dim + (dim + 2 * kv) * dim + dim * dim + 3 * ffn * dim;
  return vocab * dim + layers * layer + dim;
}

StoryModel::StoryModel(const StoryModelConfig& config, uint64_t seed)
    : config_(config), bf16_(config.bf16 && has_fast_bf16()) {
  torch::manual_seed(seed);
  seed_dropout(seed);
  const double deep = 1.0 / std::sqrt(2.0 * static_cast<double>(config.layers));  // residual branches start small
  auto weight = [&](const std::string& name, int64_t rows, int64_t columns, double deviation) {
    return register_parameter(name, torch::randn({rows, columns}) * deviation);
  };
  auto ones = [&](const std::string& name) { return register_parameter(name, torch::ones({config.dim})); };
  const double deviation = 1.0 / std::sqrt(static_cast<double>(config.dim));
  embedding_ = weight("embedding", config.vocab, config.dim, 0.02);
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string p = "layer" + std::to_string(i) + "_";
    StoryLayer layer;
    layer.attention_norm = ones(p + "attention_norm");
    layer.qkv = weight(p + "qkv", (config.heads + 2 * config.kv_heads) * config.head_dim(), config.dim, deviation);
    layer.out = weight(p + "out", config.dim, config.dim, deviation * deep);
    layer.ffn_norm = ones(p + "ffn_norm");
    layer.gate_up = weight(p + "gate_up", 2 * config.ffn, config.dim, deviation);
    layer.down = weight(p + "down", config.dim, config.ffn, deep / std::sqrt(static_cast<double>(config.ffn)));
    layers_.push_back(layer);
  }
  final_norm_ = ones("final_norm");
  const int64_t half = config.head_dim() / 2;
  torch::Tensor frequency = torch::pow(config.rope_base, torch::arange(half, torch::kFloat64) * (-1.0 / half));
  torch::Tensor angle = torch::outer(torch::arange(config.context, torch::kFloat64), frequency);
  cos_ = torch::cos(angle).to(torch::kFloat32).unsqueeze(1);
  sin_ = torch::sin(angle).to(torch::kFloat32).unsqueeze(1);
}

torch::Tensor StoryModel::norm(const torch::Tensor& x, const torch::Tensor& weight) const {
  torch::Tensor scale = torch::rsqrt(x.square().mean(-1, /*keepdim=*/true) + config_.norm_epsilon);
  return x * scale * weight;
}

// Evaluation always uses F32: the reported loss is that of the exported weights.
torch::Tensor StoryModel::linear(const torch::Tensor& x, const torch::Tensor& weight) const {
  return is_training() && bf16_ ? bf16_linear(x, weight) : torch::matmul(x, weight.t());
}

// x [batch, tokens, heads, head_dim], rotated by position.
torch::Tensor StoryModel::rotate(const torch::Tensor& x, int64_t tokens) const {
  const std::vector<torch::Tensor> halves = x.chunk(2, -1);
  const torch::Tensor c = cos_.narrow(0, 0, tokens), s = sin_.narrow(0, 0, tokens);  // [tokens, 1, head_dim / 2]
  return torch::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, -1);
}

// [tokens, tokens]: 0 where a query may attend, -inf for later keys.
torch::Tensor StoryModel::mask(int64_t tokens) {
  if (!mask_.defined() || mask_.size(0) != tokens)
    mask_ = torch::full({tokens, tokens}, -std::numeric_limits<float>::infinity()).triu(1);
  return mask_;
}

torch::Tensor StoryModel::attention(const StoryLayer& layer, const torch::Tensor& x, int64_t batch, int64_t tokens) {
  const int64_t hd = config_.head_dim(), kv = config_.kv_heads, group = config_.heads / kv;
  torch::Tensor qkv = linear(x, layer.qkv).view({batch, tokens, config_.heads + 2 * kv, hd});
  // Rotate queries and keys together, then let the `group` queries of a KV head share its keys as additional rows.
  torch::Tensor rotated = rotate(qkv.narrow(2, 0, config_.heads + kv), tokens).transpose(1, 2);
  torch::Tensor q = rotated.narrow(1, 0, config_.heads).reshape({batch * kv, group * tokens, hd});
  torch::Tensor k = rotated.narrow(1, config_.heads, kv).reshape({batch * kv, tokens, hd});
  torch::Tensor v = qkv.narrow(2, config_.heads + kv, kv).transpose(1, 2).reshape({batch * kv, tokens, hd});
  torch::Tensor scores = torch::bmm(q * (1.0 / std::sqrt(static_cast<double>(hd))), k.transpose(1, 2));
  scores = scores.view({batch * kv, group, tokens, tokens}).add_(mask(tokens));
  torch::Tensor mixed = torch::bmm(torch::softmax(scores, -1).view({batch * kv, group * tokens, tokens}), v);
  mixed = mixed.view({batch, config_.heads, tokens, hd}).transpose(1, 2).reshape({batch * tokens, config_.dim});
  return linear(mixed, layer.out);
}

torch::Tensor StoryModel::feed_forward(const StoryLayer& layer, const torch::Tensor& x) const {
  const std::vector<torch::Tensor> halves = linear(x, layer.gate_up).chunk(2, -1);
  return linear(torch::silu(halves[0]) * halves[1], layer.down);
}

torch::Tensor StoryModel::forward(const torch::Tensor& ids) {
  const int64_t batch = ids.size(0), tokens = ids.size(1);
  auto drop = [&](torch::Tensor x) {
    return is_training() && config_.dropout > 0 ? seeded_dropout(x, config_.dropout, ++dropout_seed_ * kOddStep) : x;
  };
  torch::Tensor x = drop(torch::embedding(embedding_, ids.reshape({-1})));  // [batch * tokens, dim]
  for (const StoryLayer& layer : layers_) {
    x = x + drop(attention(layer, norm(x, layer.attention_norm), batch, tokens));
    x = x + drop(feed_forward(layer, norm(x, layer.ffn_norm)));
  }
  return torch::matmul(norm(x, final_norm_), embedding_.t());
}

}  // namespace millrace
