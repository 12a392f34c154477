#include "train/fast_ops.h"

namespace millrace {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class Bf16Linear : public torch::autograd::Function<Bf16Linear> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, const torch::Tensor& weight) {
    torch::Tensor short_x = x.to(torch::kBFloat16), short_weight = weight.to(torch::kBFloat16);
    context->save_for_backward({short_x, short_weight});
    return torch::mm(short_x, short_weight.t()).to(torch::kFloat32);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    torch::Tensor gradient = gradients[0].to(torch::kBFloat16);
    return {torch::mm(gradient, saved[1]).to(torch::kFloat32), torch::mm(gradient.t(), saved[0]).to(torch::kFloat32)};
  }
};

// out[i] = x[i] * scale if the hash of i says keep, else 0. A 32-bit finalizer (Murmur3) on a counter.
torch::Tensor drop(const torch::Tensor& x, double share, uint64_t seed) {
  torch::Tensor source = x.contiguous(), out = torch::empty_like(source);
  const float* from = source.data_ptr<float>();
  float* to = out.data_ptr<float>();
  const auto limit = static_cast<int32_t>(share * 0x1.0p31);  // of a 31-bit hash
  const auto scale = static_cast<float>(1.0 / (1.0 - share));
  const auto low = static_cast<uint32_t>(seed), high = static_cast<uint32_t>(seed >> 32);
  for (int64_t i = 0, n = source.numel(); i < n; ++i) {
    uint32_t h = (static_cast<uint32_t>(i) ^ high) * 0x9e3779b1u + low;
    h = (h ^ (h >> 16)) * 0x85ebca6bu;
    h = (h ^ (h >> 13)) * 0xc2b2ae35u;
    h ^= h >> 16;
    to[i] = static_cast<int32_t>(h >> 1) < limit ? 0.0f : from[i] * scale;
  }
  return out;
}

class SeededDropout : public torch::autograd::Function<SeededDropout> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, double share, int64_t seed) {
    context->saved_data["share"] = share;
    context->saved_data["seed"] = seed;
    return drop(x, share, static_cast<uint64_t>(seed));
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const double share = context->saved_data["share"].toDouble();
    const auto seed = static_cast<uint64_t>(context->saved_data["seed"].toInt());
    return {drop(gradients[0], share, seed), torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

bool has_fast_bf16() {
#if defined(__x86_64__) && defined(__GNUC__)
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

torch::Tensor bf16_linear(const torch::Tensor& x, const torch::Tensor& weight) { return Bf16Linear::apply(x, weight); }

torch::Tensor seeded_dropout(const torch::Tensor& x, double share, uint64_t seed) {
  return SeededDropout::apply(x, share, static_cast<int64_t>(seed));
}

}  // namespace millrace
