// Mamba's causal convolution and selective scan in vectors of channels. Include after simd_math.h. A channel's results
// depend only on its inputs in the order of the tokens, not on the number of tokens in a call.
#pragma once

#include "kernels/ops.h"

namespace millrace {
namespace {

// Returns log(1 + exp(x)) = max(x, 0) + log1p(u), where u = exp(-|x|). log1p(u) = 2 atanh(s), where s = u / (2 + u) <=
// 1/3. The series of atanh in s^2 ends when its terms are below 2^-27.
inline Simd::F softplus(Simd::F x) {
  constexpr float kAtanh[] = {1.0f / 17, 1.0f / 15, 1.0f / 13, 1.0f / 11, 1.0f / 9, 1.0f / 7, 1.0f / 5, 1.0f / 3, 1.0f};
  const Simd::F u = exp(Simd::sub(Simd::zero(), Simd::abs(x)));
  const Simd::F s = Simd::div(u, Simd::add(Simd::set(2.0f), u));
  const Simd::F log = Simd::mul(Simd::add(s, s), polynomial(Simd::mul(s, s), kAtanh));
  return Simd::add(Simd::max(x, Simd::zero()), log);
}

// Loads and stores one vector of `n` channels, n <= kLanes.
struct Channels {
  int64_t n;
  Simd::F load(const float* p) const { return n == Simd::kLanes ? Simd::load(p) : Simd::load_n(p, n); }
  void store(float* p, Simd::F v) const {
    if (n == Simd::kLanes)
      Simd::store(p, v);
    else
      Simd::store_n(p, v, n);
  }
};

inline void conv_vector(const CausalConvArgs& a, int64_t c, Channels lanes) {
  for (int64_t t = 0; t < a.tokens; ++t) {
    const Simd::F input = lanes.load(a.x + t * a.x_stride + c);
    Simd::F sum = a.bias ? lanes.load(a.bias + c) : Simd::zero();
    float* window = a.window + c;
    for (int64_t k = 0; k + 1 < a.taps; ++k) {
      const Simd::F before = lanes.load(window + k * a.stride);
      sum = Simd::fma(lanes.load(a.weight + k * a.stride + c), before, sum);
      if (k > 0) lanes.store(window + (k - 1) * a.stride, before);
    }
    sum = Simd::fma(lanes.load(a.weight + (a.taps - 1) * a.stride + c), input, sum);
    if (a.taps > 1) lanes.store(window + (a.taps - 2) * a.stride, input);
    lanes.store(a.y + t * a.y_stride + c, times_sigmoid(sum, sum));
  }
}

inline void scan_vector(const SelectiveScanArgs& a, int64_t c, Channels lanes) {
  const Simd::F d = lanes.load(a.d + c);
  for (int64_t t = 0; t < a.tokens; ++t) {
    const float* b = a.b + t * a.b_stride;
    const float* out = a.c + t * a.b_stride;
    const Simd::F x = lanes.load(a.x + t * a.x_stride + c);
    const Simd::F step = softplus(lanes.load(a.step + t * a.x_stride + c));
    const Simd::F input = Simd::mul(step, x);
    Simd::F y = Simd::mul(d, x);
    for (int64_t n = 0; n < a.state_values; ++n) {
      float* state = a.state + n * a.stride + c;
      const Simd::F decay = exp(Simd::mul(step, lanes.load(a.a + n * a.stride + c)));
      const Simd::F next = Simd::fma(decay, lanes.load(state), Simd::mul(input, Simd::set(b[n])));
      lanes.store(state, next);
      y = Simd::fma(next, Simd::set(out[n]), y);
    }
    const Simd::F z = lanes.load(a.z + t * a.z_stride + c);
    lanes.store(a.y + t * a.x_stride + c, Simd::mul(y, times_sigmoid(z, z)));
  }
}

inline void causal_conv(const CausalConvArgs& a) noexcept {
  int64_t c = 0;
  for (; c + Simd::kLanes <= a.channels; c += Simd::kLanes) conv_vector(a, c, {Simd::kLanes});
  if (c < a.channels) conv_vector(a, c, {a.channels - c});
}

inline void selective_scan(const SelectiveScanArgs& a) noexcept {
  int64_t c = 0;
  for (; c + Simd::kLanes <= a.channels; c += Simd::kLanes) scan_vector(a, c, {Simd::kLanes});
  if (c < a.channels) scan_vector(a, c, {a.channels - c});
}

}  // namespace
}  // namespace millrace
