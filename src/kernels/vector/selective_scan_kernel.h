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

constexpr int64_t kUsualTaps = 4;
constexpr int64_t kConvAhead = 4;  // tokens from a token to the one whose inputs are prefetched

// Returns the input of tap k for token t: a row of the inputs, or of the window before them.
inline const float* tap_input(const CausalConvArgs& a, int64_t t, int64_t k) {
  const int64_t at = t + k - (a.taps - 1);
  return at < 0 ? a.window + (at + a.taps - 1) * a.stride : a.x + at * a.x_stride;
}

// Computes all channels of one token before the next token. The inputs of the previous tokens are then in the
// first-level cache, which cannot hold one column of all rows if the stride is a multiple of a page. Outputs must not
// be the inputs. kTaps: the number of taps, if it is known to the compiler; otherwise 0.
template <int64_t kTaps>
inline void conv_tokens(const CausalConvArgs& a) {
  const int64_t taps = kTaps > 0 ? kTaps : a.taps, stride = a.stride, whole = a.channels / Simd::kLanes * Simd::kLanes;
  const float* const weight = a.weight;
  for (int64_t t = 0; t < a.tokens; ++t) {
    const float* inputs[kTaps > 0 ? kTaps : 1];
    for (int64_t k = 0; k < kTaps; ++k) inputs[k] = tap_input(a, t, k);
    float* const y = a.y + t * a.y_stride;
    const float* const ahead = t + kConvAhead < a.tokens ? a.x + (t + kConvAhead) * a.x_stride : nullptr;
    const auto channels = [&](int64_t c, Channels lanes) __attribute__((always_inline)) {
      Simd::F sum = a.bias ? lanes.load(a.bias + c) : Simd::zero();
      for (int64_t k = 0; k < taps; ++k) {
        const float* input = kTaps > 0 ? inputs[k] : tap_input(a, t, k);
        sum = Simd::fma(lanes.load(weight + k * stride + c), lanes.load(input + c), sum);
      }
      if (ahead) Simd::prefetch(reinterpret_cast<const uint8_t*>(ahead + c));
      lanes.store(y + c, times_sigmoid(sum, sum));
    };
    for (int64_t c = 0; c < whole; c += Simd::kLanes) channels(c, {Simd::kLanes});
    if (whole < a.channels) channels(whole, {a.channels - whole});
  }
}

// Moves the last inputs to the window.
inline void keep_window(const CausalConvArgs& a) {
  for (int64_t k = 0; k + 1 < a.taps; ++k) {
    const float* from = tap_input(a, a.tokens, k);
    float* to = a.window + k * a.stride;
    if (from == to) continue;
    int64_t c = 0;
    for (; c + Simd::kLanes <= a.channels; c += Simd::kLanes) Simd::store(to + c, Simd::load(from + c));
    if (c < a.channels) Simd::store_n(to + c, Simd::load_n(from + c, a.channels - c), a.channels - c);
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
  if (a.taps == kUsualTaps)
    conv_tokens<kUsualTaps>(a);
  else
    conv_tokens<0>(a);
  keep_window(a);
}

inline void selective_scan(const SelectiveScanArgs& a) noexcept {
  int64_t c = 0;
  for (; c + Simd::kLanes <= a.channels; c += Simd::kLanes) scan_vector(a, c, {Simd::kLanes});
  if (c < a.channels) scan_vector(a, c, {a.channels - c});
}

}  // namespace
}  // namespace millrace
