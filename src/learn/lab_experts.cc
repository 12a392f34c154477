// The MLP of a layer with experts: a router chooses two for each token, whose outputs are added by its softmax over the
// two. An auxiliary loss keeps their use even. (Fedus et al., 2022, "Switch Transformers"; Jiang et al., 2024,
// "Mixtral of Experts".)
#include <algorithm>
#include <cmath>
#include <numeric>

#include "learn/lab_model.h"

namespace millrace {
namespace {

constexpr int64_t kUsed = 2, kColumns = 32;
constexpr double kBalance = 0.01;  // weight of the auxiliary loss

float widened(Bf16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

}  // namespace

void LabPass::route(int64_t index) {
  Layer& layer = layers_[static_cast<size_t>(index)];
  Routes& routes = layer.routes;
  const float* router = weight(model_.layers()[static_cast<size_t>(index)].router);
  const int64_t dim = shape_.dim, experts = shape_.experts;
  routes.expert.resize(static_cast<size_t>(tokens_ * kUsed));
  routes.shares.resize(static_cast<size_t>(tokens_ * kUsed));
  routes.all.resize(static_cast<size_t>(tokens_ * experts));
  pool_.parallel_for(tokens_ / kLabChunk, [&](int64_t chunk, int) {
    for (int64_t t = chunk * kLabChunk; t < (chunk + 1) * kLabChunk; ++t) {
      const Bf16* in = layer.mlp_normed.data() + t * dim;
      float* all = routes.all.data() + t * experts;
      for (int64_t e = 0; e < experts; ++e) {
        all[e] = 0;
        for (int64_t i = 0; i < dim; ++i) all[e] += widened(in[i]) * router[e * dim + i];
      }
      const int64_t best = std::max_element(all, all + experts) - all;
      int64_t next = best == 0 ? 1 : 0;
      for (int64_t e = 0; e < experts; ++e)
        if (e != best && all[e] > all[next]) next = e;
      const float ratio = std::exp(all[next] - all[best]), most = all[best];
      float sum = 0;
      for (int64_t e = 0; e < experts; ++e) sum += all[e] = std::exp(all[e] - most);
      for (int64_t e = 0; e < experts; ++e) all[e] /= sum;
      routes.expert[static_cast<size_t>(t * kUsed)] = best;
      routes.expert[static_cast<size_t>(t * kUsed + 1)] = next;
      routes.shares[static_cast<size_t>(t * kUsed)] = 1 / (1 + ratio);
      routes.shares[static_cast<size_t>(t * kUsed + 1)] = ratio / (1 + ratio);
    }
  });
}

void LabPass::assign_rows(Routes& routes) {
  const int64_t experts = shape_.experts;
  std::vector<int64_t> counts(static_cast<size_t>(experts));
  for (int64_t expert : routes.expert) ++counts[static_cast<size_t>(expert)];
  routes.first.assign(1, 0);
  for (int64_t count : counts)
    routes.first.push_back(routes.first.back() + (count + kLabChunk - 1) / kLabChunk * kLabChunk);
  const int64_t rows = routes.first.back();
  routes.token.assign(static_cast<size_t>(rows), -1);
  routes.row.resize(routes.expert.size());
  std::vector<int64_t> next(routes.first.begin(), routes.first.end() - 1);
  for (size_t i = 0; i < routes.expert.size(); ++i) {
    routes.row[i] = next[static_cast<size_t>(routes.expert[i])]++;
    routes.token[static_cast<size_t>(routes.row[i])] = static_cast<int64_t>(i) / kUsed;
  }
  const auto size = static_cast<size_t>(rows), dim = static_cast<size_t>(shape_.dim),
             hidden = static_cast<size_t>(shape_.hidden);
  routes.in.resize(std::max(routes.in.size(), size * dim));
  routes.out.resize(std::max(routes.out.size(), size * dim));
  routes.gate_up.resize(std::max(routes.gate_up.size(), size * 2 * hidden));
  routes.hidden.resize(std::max(routes.hidden.size(), size * hidden));
}

void LabPass::experts_forward(int64_t index) {
  route(index);
  Layer& layer = layers_[static_cast<size_t>(index)];
  Routes& routes = layer.routes;
  assign_rows(routes);
  const PackedLayer& packed = packed_[static_cast<size_t>(index)];
  const int64_t dim = shape_.dim, hidden = shape_.hidden;
  const auto activate = shape_.gate == LabGate::silu ? kernels_.silu : kernels_.relu;
  pool_.parallel_for(routes.rows() / kLabChunk, [&](int64_t chunk, int worker) {
    const int64_t from = chunk * kLabChunk;
    const int64_t expert = std::ranges::upper_bound(routes.first, from) - routes.first.begin() - 1;
    float* out = scratch_[static_cast<size_t>(worker)].data();
    Bf16 *in = routes.in.data() + from * dim, *gated = routes.hidden.data() + from * hidden;
    for (int64_t r = 0; r < kLabChunk; ++r) {
      const int64_t token = routes.token[static_cast<size_t>(from + r)];
      if (token < 0) std::fill_n(in + r * dim, dim, Bf16{0});
      if (token >= 0) std::copy_n(layer.mlp_normed.data() + token * dim, dim, in + r * dim);
    }
    const auto times = [&](const Bf16* rows, int64_t inner, const std::vector<uint32_t>& panels, int64_t columns,
                           float* to) {
      kernels_.product({reinterpret_cast<const uint32_t*>(rows), inner / 2, 1,
                        panels.data() + expert * columns * inner / 2, inner / 2 * kColumns, to, columns, kLabChunk,
                        columns, inner / 2, false});
    };
    times(in, dim, packed.gate_up.forward, 2 * hidden, out);
    kernels_.round(out, routes.gate_up.data() + from * 2 * hidden, kLabChunk * 2 * hidden);
    for (int64_t r = 0; r < kLabChunk; ++r)
      activate(out + r * 2 * hidden, out + (2 * r + 1) * hidden, hidden, gated + r * hidden);
    times(gated, hidden, packed.down.forward, dim, routes.out.data() + from * dim);
  });
  pool_.parallel_for(tokens_ / kLabChunk, [&](int64_t chunk, int) {
    for (int64_t t = chunk * kLabChunk; t < (chunk + 1) * kLabChunk; ++t) {
      for (int64_t slot = 0; slot < kUsed; ++slot) {
        const auto at = static_cast<size_t>(t * kUsed + slot);
        const float* out = routes.out.data() + routes.row[at] * dim;
        for (int64_t i = 0; i < dim; ++i) x_[static_cast<size_t>(t * dim + i)] += routes.shares[at] * out[i];
      }
    }
  });
}

// Gradients of a chunk of rows: of their shares, inputs and of what the weights' gradients need.
void LabPass::expert_rows_backward(int64_t index, int64_t chunk, float* out) {
  const Routes& routes = layers_[static_cast<size_t>(index)].routes;
  const PackedLayer& packed = packed_[static_cast<size_t>(index)];
  const int64_t dim = shape_.dim, hidden = shape_.hidden, from = chunk * kLabChunk;
  const int64_t expert = std::ranges::upper_bound(routes.first, from) - routes.first.begin() - 1;
  std::fill_n(out, kLabChunk * dim, 0.0f);
  for (int64_t r = 0; r < kLabChunk; ++r) {
    const int64_t token = routes.token[static_cast<size_t>(from + r)];
    if (token < 0) continue;
    const auto slot = static_cast<size_t>(token * kUsed + (routes.row[static_cast<size_t>(token * kUsed)] != from + r));
    const float *d_x = d_x_.data() + token * dim, *y = routes.out.data() + (from + r) * dim;
    float d_share = 0;
    for (int64_t i = 0; i < dim; ++i) {
      d_share += d_x[i] * y[i];
      out[r * dim + i] = routes.shares[slot] * d_x[i];
    }
    d_row_shares_[slot] = d_share;
  }
  kernels_.round(out, d_rows_.data() + from * dim, kLabChunk * dim);
  const auto times = [&](const Bf16* rows, int64_t inner, const std::vector<uint32_t>& panels, int64_t columns,
                         float* to) {  // the panels of all experts' rows, of which this one's are `inner`
    kernels_.product({reinterpret_cast<const uint32_t*>(rows), inner / 2, 1,
                      panels.data() + expert * inner / 2 * kColumns, shape_.experts * inner / 2 * kColumns, to, columns,
                      kLabChunk, columns, inner / 2, false});
  };
  times(d_rows_.data() + from * dim, dim, packed.down.backward, hidden, out);
  const auto back = shape_.gate == LabGate::silu ? kernels_.silu_backward : kernels_.relu_backward;
  Bf16* d_gate_up = d_gate_up_.data() + from * 2 * hidden;
  for (int64_t r = 0; r < kLabChunk; ++r) {
    const Bf16* gate = routes.gate_up.data() + (from + r) * 2 * hidden;
    Bf16* d_gate = d_gate_up + r * 2 * hidden;
    back(gate, gate + hidden, out + r * hidden, hidden, d_gate, d_gate + hidden);
  }
  times(d_gate_up, 2 * hidden, packed.gate_up.backward, dim, d_row_in_.data() + from * dim);
}

// Through the two shares and the auxiliary loss: kBalance * experts * sum over experts of (share of the choices) times
// (mean of the probabilities).
void LabPass::router_backward(int64_t index) {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const Routes& routes = layer.routes;
  const LabTensor& tensor = model_.layers()[static_cast<size_t>(index)].router;
  const float* router = weight(tensor);
  float* gradient = model_.gradient().data() + tensor.offset;
  const int64_t dim = shape_.dim, experts = shape_.experts;
  std::vector<double> used(static_cast<size_t>(experts));
  for (int64_t expert : routes.expert) used[static_cast<size_t>(expert)] += 1.0 / static_cast<double>(kUsed * tokens_);
  std::vector<float> d_logits(static_cast<size_t>(experts));
  for (int64_t t = 0; t < tokens_; ++t) {
    const float* all = routes.all.data() + t * experts;
    double mean = 0;
    for (int64_t e = 0; e < experts; ++e) mean += used[static_cast<size_t>(e)] * static_cast<double>(all[e]);
    for (int64_t e = 0; e < experts; ++e)
      d_logits[static_cast<size_t>(e)] =
          static_cast<float>(kBalance * static_cast<double>(experts) / static_cast<double>(tokens_) *
                             static_cast<double>(all[e]) * (used[static_cast<size_t>(e)] - mean));
    const auto at = static_cast<size_t>(t * kUsed);
    const float first = routes.shares[at], second = routes.shares[at + 1];
    const float d_first = first * second * (d_row_shares_[at] - d_row_shares_[at + 1]);
    d_logits[static_cast<size_t>(routes.expert[at])] += d_first;
    d_logits[static_cast<size_t>(routes.expert[at + 1])] -= d_first;
    const Bf16* in = layer.mlp_normed.data() + t * dim;
    float* d_in = d_normed_.data() + t * dim;
    for (int64_t e = 0; e < experts; ++e) {
      const float d = d_logits[static_cast<size_t>(e)];
      for (int64_t i = 0; i < dim; ++i) {
        gradient[e * dim + i] += d * widened(in[i]);
        d_in[i] += d * router[e * dim + i];
      }
    }
  }
}

void LabPass::experts_backward(int64_t index) {
  const Routes& routes = layers_[static_cast<size_t>(index)].routes;
  const LabLayerTensors& tensors = model_.layers()[static_cast<size_t>(index)];
  const int64_t dim = shape_.dim, hidden = shape_.hidden;
  const auto rows = static_cast<size_t>(routes.rows());
  d_row_shares_.resize(routes.shares.size());
  d_row_in_.resize(std::max(d_row_in_.size(), rows * static_cast<size_t>(dim)));
  d_rows_.resize(std::max(d_rows_.size(), rows * static_cast<size_t>(dim)));
  d_gate_up_.resize(std::max(d_gate_up_.size(), rows * static_cast<size_t>(2 * hidden)));
  pool_.parallel_for(routes.rows() / kLabChunk, [&](int64_t chunk, int worker) {
    expert_rows_backward(index, chunk, scratch_[static_cast<size_t>(worker)].data());
  });
  pool_.parallel_for(tokens_ / kLabChunk, [&](int64_t chunk, int) {
    for (int64_t t = chunk * kLabChunk; t < (chunk + 1) * kLabChunk; ++t) {
      const float* a = d_row_in_.data() + routes.row[static_cast<size_t>(t * kUsed)] * dim;
      const float* b = d_row_in_.data() + routes.row[static_cast<size_t>(t * kUsed + 1)] * dim;
      for (int64_t i = 0; i < dim; ++i) d_normed_[static_cast<size_t>(t * dim + i)] = a[i] + b[i];
    }
  });
  router_backward(index);
  for (int64_t expert = 0; expert < shape_.experts; ++expert) {
    const int64_t from = routes.first[static_cast<size_t>(expert)], end = routes.first[static_cast<size_t>(expert) + 1];
    if (end == from) continue;
    LabTensor down = tensors.down, gate_up = tensors.gate_up;
    down.rows = dim;
    down.offset += expert * dim * hidden;
    gate_up.rows = 2 * hidden;
    gate_up.offset += expert * 2 * hidden * dim;
    weight_gradient(down, d_rows_.data() + from * dim, routes.hidden.data() + from * hidden, end - from);
    weight_gradient(gate_up, d_gate_up_.data() + from * 2 * hidden, routes.in.data() + from * dim, end - from);
  }
}

}  // namespace millrace
