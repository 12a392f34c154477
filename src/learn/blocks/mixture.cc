#include "learn/blocks/mixture.h"

#include <bit>
#include <cmath>

namespace millrace {
namespace {

constexpr double kBalance = 0.01;  // weight of the auxiliary loss

float widened(Bf16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }
float widened(float value) { return value; }

}  // namespace

template <typename Factor>
LabExperts<Factor>::LabExperts(HiddenActivation activation, const LayerSpec& layer, const LabLayerTensors& tensors)
    : width_(tensors.down.rows / layer.experts.experts), router_(tensors.router) {
  const int64_t hidden = layer.experts.hidden;
  for (int64_t e = 0; e < layer.experts.experts; ++e)
    mlps_.emplace_back(activation, tensors.gate_up.rows_of(e * 2 * hidden, 2 * hidden),
                       tensors.down.rows_of(e * width_, width_));
}

template <typename Factor>
std::vector<LabLinear<Factor>*> LabExperts<Factor>::linears() {
  std::vector<LabLinear<Factor>*> out;
  for (LabGatedMlp<Factor>& mlp : mlps_)
    for (LabLinear<Factor>* linear : mlp.linears()) out.push_back(linear);
  return out;
}

template <typename Factor>
void LabExperts<Factor>::reserve(LabWorkspace<Factor>& work, int64_t rows) {
  grow(in_, rows * width_);
  grow(work.d_normed, rows * width_);
  expert_.resize(static_cast<size_t>(rows * kExpertsUsed));
  for (auto* one : {&shares_, &d_shares_}) one->resize(static_cast<size_t>(rows * kExpertsUsed));
  all_.resize(static_cast<size_t>(rows) * mlps_.size());
}

template <typename Factor>
void LabExperts<Factor>::route(LabWorkspace<Factor>& work, int64_t rows) {
  const float* router = work.weight(router_);
  const auto experts = std::ssize(mlps_);
  work.in_chunks(rows, [&](LabChunk chunk) {
    for (int64_t t = chunk.row(); t < chunk.row() + kLabChunk; ++t) {
      const Factor* token = in(t);
      float* all = all_.data() + t * experts;
      for (int64_t e = 0; e < experts; ++e) {
        all[e] = 0;
        for (int64_t i = 0; i < width_; ++i) all[e] += widened(token[i]) * router[e * width_ + i];
      }
      const int64_t best = std::max_element(all, all + experts) - all;
      int64_t next = best == 0 ? 1 : 0;
      for (int64_t e = 0; e < experts; ++e)
        if (e != best && all[e] > all[next]) next = e;
      const float ratio = std::exp(all[next] - all[best]), most = all[best];
      float sum = 0;
      for (int64_t e = 0; e < experts; ++e) sum += all[e] = std::exp(all[e] - most);
      for (int64_t e = 0; e < experts; ++e) all[e] /= sum;
      const auto at = static_cast<size_t>(t * kExpertsUsed);
      expert_[at] = best;
      expert_[at + 1] = next;
      shares_[at] = 1 / (1 + ratio);
      shares_[at + 1] = ratio / (1 + ratio);
    }
  });
}

// Gives each choice a row of its expert, whose rows are filled up to whole chunks.
template <typename Factor>
void LabExperts<Factor>::assign_rows() {
  std::vector<int64_t> counts(mlps_.size());
  for (int64_t expert : expert_) ++counts[static_cast<size_t>(expert)];
  first_.assign(1, 0);
  for (int64_t count : counts) first_.push_back(first_.back() + (count + kLabChunk - 1) / kLabChunk * kLabChunk);
  const int64_t rows = first_.back();
  token_.assign(static_cast<size_t>(rows), -1);
  row_.resize(expert_.size());
  std::vector<int64_t> next(first_.begin(), first_.end() - 1);
  for (size_t i = 0; i < expert_.size(); ++i) {
    row_[i] = next[static_cast<size_t>(expert_[i])]++;
    token_[static_cast<size_t>(row_[i])] = static_cast<int64_t>(i) / kExpertsUsed;
  }
  mlps_[0].reserve(rows_, rows);
  grow(out_, rows * width_);
  grow(d_row_in_, rows * width_);
}

template <typename Factor>
int64_t LabExperts<Factor>::expert_of(int64_t row) const {
  return std::ranges::upper_bound(first_, row) - first_.begin() - 1;
}

// Copies the inputs of a chunk's tokens.
template <typename Factor>
void LabExperts<Factor>::gather(LabChunk chunk) {
  Factor* to = rows_.in.data() + chunk.row() * width_;
  for (int64_t r = 0; r < kLabChunk; ++r, to += width_) {
    const int64_t token = token_[static_cast<size_t>(chunk.row() + r)];
    if (token < 0) std::fill_n(to, width_, Factor{0});
    if (token >= 0) std::copy_n(in(token), width_, to);
  }
}

template <typename Factor>
void LabExperts<Factor>::forward(LabWorkspace<Factor>& work, int64_t rows, float* x) {
  route(work, rows);
  assign_rows();
  work.in_chunks(first_.back(), [&](LabChunk chunk) {
    gather(chunk);
    mlps_[static_cast<size_t>(expert_of(chunk.row()))].forward(work, rows_, chunk, out_.data() + chunk.row() * width_);
  });
  work.in_chunks(rows, [&](LabChunk chunk) {
    for (int64_t t = chunk.row(); t < chunk.row() + kLabChunk; ++t) {
      for (int64_t slot = 0; slot < kExpertsUsed; ++slot) {
        const auto at = static_cast<size_t>(t * kExpertsUsed + slot);
        const float* out = out_.data() + row_[at] * width_;
        for (int64_t i = 0; i < width_; ++i) x[t * width_ + i] += shares_[at] * out[i];
      }
    }
  });
}

template <typename Factor>
void LabExperts<Factor>::rows_backward(LabChunk chunk, const float* d_x, float* d_out) {
  std::fill_n(d_out, kLabChunk * width_, 0.0f);
  for (int64_t r = 0; r < kLabChunk; ++r) {
    const int64_t row = chunk.row() + r, token = token_[static_cast<size_t>(row)];
    if (token < 0) continue;
    const auto at = static_cast<size_t>(token * kExpertsUsed), slot = at + (row_[at] != row);
    const float *d_token = d_x + token * width_, *out = out_.data() + row * width_;
    float d_share = 0;
    for (int64_t i = 0; i < width_; ++i) {
      d_share += d_token[i] * out[i];
      d_out[r * width_ + i] = shares_[slot] * d_token[i];
    }
    d_shares_[slot] = d_share;
  }
}

template <typename Factor>
void LabExperts<Factor>::expert_backward(LabWorkspace<Factor>& work, size_t expert, const float* d_x) {
  const LabGatedMlp<Factor>& mlp = mlps_[expert];
  LabFactors<Factor>&down = work.factors[0], &gate_up = work.factors[1];
  mlp.down().reserve(down);
  mlp.gate_up().reserve(gate_up);
  const int64_t first = first_[expert] / kLabChunk;
  work.in_slices(
      first_[expert + 1] - first_[expert],
      [&](LabChunk place) {
        const LabChunk chunk{first + place.index, place.worker};
        float* d_out = work.buffers(place.worker).out.data();
        rows_backward(chunk, d_x, d_out);
        mlp.backward(work, rows_, chunk, place, d_out, d_row_in_.data() + chunk.row() * width_, down, gate_up);
      },
      [&](int64_t chunks) {
        mlp.down().add_gradient(work, down, chunks);
        mlp.gate_up().add_gradient(work, gate_up, chunks);
      });
}

// Through the two shares and the auxiliary loss: kBalance * experts * sum over experts of (share of the choices) times
// (mean of the probabilities).
template <typename Factor>
void LabExperts<Factor>::router_backward(LabWorkspace<Factor>& work, int64_t rows) {
  const float* router = work.weight(router_);
  float* gradient = work.gradient(router_);
  const auto experts = std::ssize(mlps_);
  std::vector<double> used(mlps_.size());
  for (int64_t expert : expert_) used[static_cast<size_t>(expert)] += 1.0 / static_cast<double>(kExpertsUsed * rows);
  std::vector<float> d_logits(mlps_.size());
  for (int64_t t = 0; t < rows; ++t) {
    const float* all = all_.data() + t * experts;
    double mean = 0;
    for (size_t e = 0; e < mlps_.size(); ++e) mean += used[e] * static_cast<double>(all[e]);
    for (size_t e = 0; e < mlps_.size(); ++e)
      d_logits[e] = static_cast<float>(kBalance * static_cast<double>(experts) / static_cast<double>(rows) *
                                       static_cast<double>(all[e]) * (used[e] - mean));
    const auto at = static_cast<size_t>(t * kExpertsUsed);
    const float d_first = shares_[at] * shares_[at + 1] * (d_shares_[at] - d_shares_[at + 1]);
    d_logits[static_cast<size_t>(expert_[at])] += d_first;
    d_logits[static_cast<size_t>(expert_[at + 1])] -= d_first;
    const Factor* token = in(t);
    float* d_in = work.d_normed.data() + t * width_;
    for (int64_t e = 0; e < experts; ++e) {
      const float d = d_logits[static_cast<size_t>(e)];
      for (int64_t i = 0; i < width_; ++i) {
        gradient[e * width_ + i] += d * widened(token[i]);
        d_in[i] += d * router[e * width_ + i];
      }
    }
  }
}

template <typename Factor>
void LabExperts<Factor>::backward(LabWorkspace<Factor>& work, int64_t rows, const float* d_x) {
  for (size_t expert = 0; expert < mlps_.size(); ++expert) expert_backward(work, expert, d_x);
  work.in_chunks(rows, [&](LabChunk chunk) {
    for (int64_t t = chunk.row(); t < chunk.row() + kLabChunk; ++t) {
      const auto at = static_cast<size_t>(t * kExpertsUsed);
      const float *a = d_row_in_.data() + row_[at] * width_, *b = d_row_in_.data() + row_[at + 1] * width_;
      for (int64_t i = 0; i < width_; ++i) work.d_normed[static_cast<size_t>(t * width_ + i)] = a[i] + b[i];
    }
  });
  router_backward(work, rows);
}

template class LabExperts<Bf16>;
template class LabExperts<float>;

}  // namespace millrace
