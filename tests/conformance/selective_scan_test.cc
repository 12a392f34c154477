// The causal convolution and the selective scan of every table, against their definitions in double, and bit for bit
// against themselves in pieces: of tokens, and of channels.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernel_tables.h"

namespace millrace {
namespace {

using testing::expect_close;
using testing::kernel_tables;
using testing::random_values;
using testing::same_bits;

double swish(double x) { return x / (1 + std::exp(-x)); }

// Inputs and outputs of both kernels, with rows wider than the channels and guards between them.
struct Stream {
  static constexpr int64_t kTaps = 4, kState = 5;
  int64_t tokens, channels, stride;
  std::vector<float> weight, bias, window, a, d, state, x, step, b, z, conv, y;

  Stream(int64_t t, int64_t c) : tokens(t), channels(c), stride(c + 3) {
    weight = random_values(kTaps * stride, 1);
    bias = random_values(stride, 2);
    window = random_values((kTaps - 1) * stride, 3);
    a = random_values(kState * stride, 4);
    for (float& v : a) v = -std::exp(v);
    d = random_values(stride, 5);
    state = random_values(kState * stride, 6);
    x = random_values(tokens * stride, 7);
    step = random_values(tokens * stride, 8);
    for (size_t i = 0; i < step.size(); ++i) step[i] *= i % 7 ? 2.0f : 30.0f;  // softplus's far ends, too
    b = random_values(tokens * 2 * kState, 9);
    z = random_values(tokens * stride, 10);
    conv = y = std::vector<float>(x.size(), 99.0f);
  }

  void convolve(const KernelTable& table, int64_t t, int64_t count, int64_t c, int64_t width) {
    table.causal_conv({.tokens = count,
                       .channels = width,
                       .taps = kTaps,
                       .stride = stride,
                       .weight = weight.data() + c,
                       .bias = bias.data() + c,
                       .window = window.data() + c,
                       .x = x.data() + t * stride + c,
                       .x_stride = stride,
                       .y = conv.data() + t * stride + c,
                       .y_stride = stride});
  }
  void scan(const KernelTable& table, int64_t t, int64_t count, int64_t c, int64_t width) {
    table.selective_scan({.tokens = count,
                          .channels = width,
                          .state_values = kState,
                          .stride = stride,
                          .a = a.data() + c,
                          .d = d.data() + c,
                          .state = state.data() + c,
                          .x = x.data() + t * stride + c,
                          .step = step.data() + t * stride + c,
                          .y = y.data() + t * stride + c,
                          .x_stride = stride,
                          .b = b.data() + t * 2 * kState,
                          .c = b.data() + t * 2 * kState + kState,
                          .b_stride = 2 * kState,
                          .z = z.data() + t * stride + c,
                          .z_stride = stride});
  }
  bool same(const Stream& other) const {
    return same_bits(conv, other.conv) && same_bits(y, other.y) && same_bits(window, other.window) &&
           same_bits(state, other.state);
  }
};

TEST(SelectiveScan, EqualsItsDefinition) {
  for (const KernelTable& table : kernel_tables()) {
    for (int64_t channels : {1, 7, 8, 16, 17, 128, 150}) {
      SCOPED_TRACE(isa_name(table.isa) + " channels = " + std::to_string(channels));
      const Stream before(6, channels);
      Stream s = before;
      s.convolve(table, 0, 6, 0, channels);
      s.scan(table, 0, 6, 0, channels);
      std::vector<float> conv = before.conv, y = before.y, state = before.state;
      for (int64_t c = 0; c < channels; ++c) {
        std::vector<double> h(Stream::kState);
        for (int64_t n = 0; n < Stream::kState; ++n) h[n] = before.state[n * s.stride + c];
        for (int64_t t = 0; t < 6; ++t) {
          double sum = before.bias[c];
          for (int64_t k = 0; k < Stream::kTaps; ++k) {
            const int64_t at = t + k;  // of the inputs with the window in front
            const double input = at < 3 ? before.window[at * s.stride + c] : before.x[(at - 3) * s.stride + c];
            sum += static_cast<double>(before.weight[k * s.stride + c]) * input;
          }
          conv[t * s.stride + c] = static_cast<float>(swish(sum));
          const double x = before.x[t * s.stride + c];
          const double step = std::log1p(std::exp(static_cast<double>(before.step[t * s.stride + c])));
          double out = before.d[c] * x;
          for (int64_t n = 0; n < Stream::kState; ++n) {
            h[n] = std::exp(step * before.a[n * s.stride + c]) * h[n] + step * x * before.b[t * 2 * Stream::kState + n];
            out += h[n] * before.b[t * 2 * Stream::kState + Stream::kState + n];
          }
          y[t * s.stride + c] = static_cast<float>(out * swish(before.z[t * s.stride + c]));
        }
        for (int64_t n = 0; n < Stream::kState; ++n) state[n * s.stride + c] = static_cast<float>(h[n]);
      }
      expect_close(s.conv, conv, 2e-6);
      expect_close(s.y, y, 2e-6);
      expect_close(s.state, state, 2e-6);
      for (int64_t c = 0; c < channels; ++c)
        for (int64_t k = 0; k < 3; ++k) EXPECT_EQ(s.window[k * s.stride + c], before.x[(3 + k) * s.stride + c]);
    }
  }
}

TEST(SelectiveScan, PiecesOfTokensAndChannelsGiveTheSameBits) {
  for (const KernelTable& table : kernel_tables()) {
    const Stream before(9, 45);
    Stream whole = before, tokens = before, channels = before;
    whole.convolve(table, 0, 9, 0, 45);
    whole.scan(table, 0, 9, 0, 45);
    for (int64_t t = 0, count; t < 9; t += count) {
      count = std::min<int64_t>(1 + t, 9 - t);
      tokens.convolve(table, t, count, 0, 45);
      tokens.scan(table, t, count, 0, 45);
    }
    for (int64_t c = 0, width; c < 45; c += width) {
      width = std::min<int64_t>(c % 2 ? 16 : 5, 45 - c);
      channels.convolve(table, 0, 9, c, width);
      channels.scan(table, 0, 9, c, width);
    }
    EXPECT_TRUE(whole.same(tokens)) << isa_name(table.isa);
    EXPECT_TRUE(whole.same(channels)) << isa_name(table.isa);
  }
}

TEST(SelectiveScan, MayWriteOverItsInput) {
  for (const KernelTable& table : kernel_tables()) {
    const Stream before(4, 20);
    Stream apart = before, over = before;
    apart.scan(table, 0, 4, 0, 20);
    over.y = over.x;
    table.selective_scan({.tokens = 4,
                          .channels = 20,
                          .state_values = Stream::kState,
                          .stride = over.stride,
                          .a = over.a.data(),
                          .d = over.d.data(),
                          .state = over.state.data(),
                          .x = over.y.data(),
                          .step = over.step.data(),
                          .y = over.y.data(),
                          .x_stride = over.stride,
                          .b = over.b.data(),
                          .c = over.b.data() + Stream::kState,
                          .b_stride = 2 * Stream::kState,
                          .z = over.z.data(),
                          .z_stride = over.stride});
    for (int64_t t = 0; t < 4; ++t)
      for (int64_t c = 0; c < 20; ++c) EXPECT_EQ(over.y[t * over.stride + c], apart.y[t * over.stride + c]);
    EXPECT_TRUE(same_bits(over.state, apart.state));
  }
}

TEST(SelectiveScan, EveryTableHasIt) {
  for (const KernelTable& table : kernel_tables()) EXPECT_TRUE(table.causal_conv && table.selective_scan);
}

}  // namespace
}  // namespace millrace
