#include "learn/lab_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/philox.h"

namespace millrace {
namespace {

constexpr int64_t kPanel = 32;  // columns of a packed panel
constexpr int64_t kSlice = 8;   // chunks at a time, so that what a gradient is made of stays in the cache

// body(first, count) for each slice of `chunks`.
template <typename Body>
void in_slices(int64_t chunks, const Body& body) {
  for (int64_t first = 0; first < chunks; first += kSlice) body(first, std::min(kSlice, chunks - first));
}

double normal(uint64_t seed, uint64_t index) {  // Box and Muller, 1958
  const double radius = std::sqrt(-2.0 * std::log(1.0 - philox_uniform(seed, 0, 2 * index)));
  return radius * std::cos(2.0 * std::numbers::pi * philox_uniform(seed, 0, 2 * index + 1));
}

}  // namespace

int64_t LabShape::parameters() const {
  const int64_t mlps = std::max<int64_t>(1, experts);
  const int64_t layer = 2 * dim + qkv() * dim + dim * dim + 3 * mlps * hidden * dim + experts * dim;
  return vocab * dim + layers * layer + dim;
}

bool trainable(const LabShape& s) {
  const auto sized = [](int64_t n) { return n > 0 && n <= 1 << 17 && n % 32 == 0; };
  return sized(s.vocab) && s.context > 0 && s.context <= 1 << 20 && sized(s.dim) && s.dim <= 4096 && s.layers > 0 &&
         s.layers <= 256 && s.heads > 0 && s.dim % s.heads == 0 && s.head_dim() % 32 == 0 && s.kv_heads > 0 &&
         s.heads % s.kv_heads == 0 && sized(s.hidden) && s.hidden <= 1 << 14 &&
         (s.experts == 0 || (s.experts >= 2 && s.experts <= 256)) && s.rope_base > 1 && s.epsilon > 0;
}

LabModel::LabModel(const LabShape& shape, uint64_t seed) : shape_(shape) {
  const double deviation = 1.0 / std::sqrt(static_cast<double>(shape.dim));
  const double deep = 1.0 / std::sqrt(2.0 * static_cast<double>(shape.layers));  // residual branches start small
  auto matrix = [&](const std::string& name, int64_t rows, int64_t columns, double spread) {
    const auto offset = static_cast<int64_t>(weights_.size());
    for (int64_t i = 0; i < rows * columns; ++i)
      weights_.push_back(static_cast<float>(spread * normal(seed, static_cast<uint64_t>(offset + i))));
    return LabTensor{name, rows, columns, offset, {rows}, true};
  };
  auto vector = [&](const std::string& name) {
    const auto offset = static_cast<int64_t>(weights_.size());
    weights_.resize(weights_.size() + static_cast<size_t>(shape.dim), 1.0f);
    return LabTensor{name, 1, shape.dim, offset, {1}, false};
  };
  embedding_ = matrix("embedding", shape.vocab, shape.dim, 0.02);
  embedding_.matrix = false;
  for (int64_t i = 0; i < shape.layers; ++i) {
    const std::string p = "layer" + std::to_string(i) + "_";
    LabLayerTensors layer;
    layer.attention_norm = vector(p + "attention_norm");
    layer.qkv = matrix(p + "qkv", shape.qkv(), shape.dim, deviation);
    const int64_t kv = shape.kv_heads * shape.head_dim();
    layer.qkv.parts = {shape.dim, kv, kv};
    layer.out = matrix(p + "out", shape.dim, shape.dim, deviation * deep);
    layer.mlp_norm = vector(p + "mlp_norm");
    const int64_t mlps = std::max<int64_t>(1, shape.experts);
    layer.gate_up = matrix(p + "gate_up", mlps * 2 * shape.hidden, shape.dim, deviation);
    layer.gate_up.parts.assign(static_cast<size_t>(2 * mlps), shape.hidden);
    layer.down =
        matrix(p + "down", mlps * shape.dim, shape.hidden, deep / std::sqrt(static_cast<double>(shape.hidden)));
    layer.down.parts.assign(static_cast<size_t>(mlps), shape.dim);
    if (shape.experts > 0) {
      layer.router = matrix(p + "router", shape.experts, shape.dim, 0.02);
      layer.router.matrix = false;
    }
    layers_.push_back(std::move(layer));
  }
  final_norm_ = vector("final_norm");
  gradient_.assign(weights_.size(), 0.0f);
}

std::vector<LabTensor> LabModel::tensors() const {
  std::vector<LabTensor> out = {embedding_, final_norm_};
  for (const LabLayerTensors& l : layers_) {
    out.insert(out.end(), {l.attention_norm, l.qkv, l.out, l.mlp_norm, l.gate_up, l.down});
    if (shape_.experts > 0) out.push_back(l.router);
  }
  return out;
}

LabPass::LabPass(LabModel& model, ThreadPool& pool, const TrainingKernels& kernels)
    : model_(model), shape_(model.shape()), pool_(pool), kernels_(kernels) {
  const int64_t half = shape_.head_dim() / 2;
  for (int64_t at = 0; at < shape_.context; ++at) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(at) * std::pow(shape_.rope_base, -static_cast<double>(i) / static_cast<double>(half));
      cosines_.push_back(static_cast<float>(std::cos(angle)));
      sines_.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  layers_.resize(static_cast<size_t>(shape_.layers));
  packed_.resize(static_cast<size_t>(shape_.layers));
  const int64_t widest = std::max({2 * shape_.hidden, shape_.qkv(), shape_.vocab}) + shape_.dim;
  scratch_.resize(static_cast<size_t>(pool.threads()));
  for (auto& scratch : scratch_)
    scratch.resize(
        static_cast<size_t>(std::max(kLabChunk * widest, training_scratch(shape_.context, shape_.head_dim()))));
}

void LabPass::reserve(const LabBatch& batch) {
  tokens_ = (batch.tokens() + kLabChunk - 1) / kLabChunk * kLabChunk;
  documents_.clear();
  for (size_t i = 0; i < batch.starts.size(); ++i) {
    const int64_t end = i + 1 < batch.starts.size() ? batch.starts[i + 1] : batch.tokens();
    documents_.push_back({batch.starts[i], end - batch.starts[i]});
  }
  if (tokens_ > capacity_) {
    capacity_ = tokens_;
    const auto rows = static_cast<size_t>(capacity_), dim = static_cast<size_t>(shape_.dim);
    for (Layer& layer : layers_) {
      layer.in.resize(rows * dim);
      layer.middle.resize(rows * dim);
      layer.log_sums.resize(rows * static_cast<size_t>(shape_.heads));
      layer.attention_normed.resize(rows * dim);
      layer.mixed.resize(rows * dim);
      layer.mlp_normed.resize(rows * dim);
      layer.qkv.resize(rows * static_cast<size_t>(shape_.qkv()));
      layer.gate_up.resize(rows * static_cast<size_t>(2 * shape_.hidden));
      layer.hidden.resize(rows * static_cast<size_t>(shape_.hidden));
    }
    for (auto* buffer : {&x_, &d_x_}) buffer->resize(rows * dim);
    for (auto* buffer : {&d_rows_, &d_middle_, &d_mixed_}) buffer->resize(rows * dim);
    if (shape_.experts > 0) d_normed_.resize(rows * dim);
    d_gate_up_.resize(rows * static_cast<size_t>(2 * shape_.hidden));
    d_qkv_.resize(rows * static_cast<size_t>(shape_.qkv()));
    norm_gradients_.resize(rows / kLabChunk * dim);
  }
  // Rows after the last document take no part in attention.
  const int64_t from = batch.tokens(), idle = tokens_ - from;
  for (Layer& layer : layers_) std::fill_n(layer.mixed.begin() + from * shape_.dim, idle * shape_.dim, Bf16{0});
  std::fill_n(d_qkv_.begin() + from * shape_.qkv(), idle * shape_.qkv(), Bf16{0});
}

void LabPass::pack(const LabTensor& tensor, Packed& to) {
  const auto size = static_cast<size_t>(tensor.rows * tensor.columns);
  to.rounded.resize(size);
  kernels_.round(weight(tensor), to.rounded.data(), static_cast<int64_t>(size));
  to.forward.resize(size / 2);
  to.backward.resize(size / 2);
  kernels_.pack_columns(to.rounded.data(), tensor.columns, tensor.rows, tensor.columns, to.forward.data());
  kernels_.pack_rows(to.rounded.data(), tensor.columns, tensor.rows, tensor.columns, to.backward.data());
}

void LabPass::pack_weights() {
  pool_.parallel_for(shape_.layers * 4 + 1, [&](int64_t i, int) {
    if (i == shape_.layers * 4) return pack(model_.embedding(), packed_embedding_);
    const LabLayerTensors& from = model_.layers()[static_cast<size_t>(i / 4)];
    PackedLayer& to = packed_[static_cast<size_t>(i / 4)];
    if (i % 4 == 0) pack(from.qkv, to.qkv);
    if (i % 4 == 1) pack(from.out, to.out);
    if (i % 4 == 2) pack(from.gate_up, to.gate_up);
    if (i % 4 == 3) pack(from.down, to.down);
  });
}

// out [kLabChunk, columns] = rows [kLabChunk, inner] times the packed matrix.
void LabPass::multiply(const Bf16* rows, int64_t inner, const std::vector<uint32_t>& panels, int64_t columns,
                       float* out) {
  kernels_.product({reinterpret_cast<const uint32_t*>(rows), inner / 2, 1, panels.data(), inner / 2 * kPanel, out,
                    columns, kLabChunk, columns, inner / 2, false});
}

void LabPass::embed(const LabBatch& batch) {
  const int64_t dim = shape_.dim;
  for (int64_t t = 0; t < tokens_; ++t) {
    const int64_t id = t < batch.tokens() ? batch.ids[static_cast<size_t>(t)] : 0;
    std::memcpy(x_.data() + t * dim, weight(model_.embedding()) + id * dim, static_cast<size_t>(dim) * sizeof(float));
  }
}

void LabPass::attention_inputs(int64_t index) {
  Layer& layer = layers_[static_cast<size_t>(index)];
  const LabLayerTensors& tensors = model_.layers()[static_cast<size_t>(index)];
  const int64_t dim = shape_.dim, width = shape_.qkv(), head = shape_.head_dim();
  std::vector<int32_t> positions(static_cast<size_t>(tokens_), 0);
  for (const auto& [start, length] : documents_)
    for (int64_t i = 0; i < length; ++i) positions[static_cast<size_t>(start + i)] = static_cast<int32_t>(i);
  pool_.parallel_for(tokens_ / kLabChunk, [&](int64_t chunk, int worker) {
    const int64_t from = chunk * kLabChunk;
    float* out = scratch_[static_cast<size_t>(worker)].data();
    std::memcpy(layer.in.data() + from * dim, x_.data() + from * dim, static_cast<size_t>(kLabChunk * dim) * 4);
    for (int64_t t = from; t < from + kLabChunk; ++t)
      kernels_.norm(x_.data() + t * dim, weight(tensors.attention_norm), shape_.epsilon, dim,
                    layer.attention_normed.data() + t * dim);
    multiply(layer.attention_normed.data() + from * dim, dim, packed_[static_cast<size_t>(index)].qkv.forward, width,
             out);
    for (int64_t r = 0; r < kLabChunk; ++r) {
      const int64_t at = positions[static_cast<size_t>(from + r)] * head / 2;
      for (int64_t h = 0; h < shape_.heads + shape_.kv_heads; ++h)
        kernels_.rotate(out + r * width + h * head, cosines_.data() + at, sines_.data() + at, 1.0f, head);
    }
    kernels_.round(out, layer.qkv.data() + from * width, kLabChunk * width);
  });
}

void LabPass::attention(int64_t index, bool backward) {
  Layer& layer = layers_[static_cast<size_t>(index)];
  const int64_t width = shape_.qkv(), head = shape_.head_dim(), group = shape_.heads / shape_.kv_heads;
  const auto count = static_cast<int64_t>(documents_.size()) * shape_.kv_heads;
  pool_.parallel_for(count, [&](int64_t i, int worker) {
    const auto [start, length] = documents_[static_cast<size_t>(i / shape_.kv_heads)];
    const int64_t kv = i % shape_.kv_heads, q = kv * group;
    TrainingAttention a;
    const int64_t key_at = (shape_.heads + kv) * head, value_at = key_at + shape_.kv_heads * head;
    const Bf16* from = layer.qkv.data() + start * width;
    a.q = from + q * head;
    a.k = from + key_at;
    a.v = from + value_at;
    a.stride = width;
    a.out_stride = shape_.dim;
    a.tokens = length;
    a.heads = group;
    a.dim = head;
    a.out = layer.mixed.data() + start * shape_.dim + q * head;
    a.log_sums = layer.log_sums.data() + start * shape_.heads + q;
    a.log_stride = shape_.heads;
    a.scratch = scratch_[static_cast<size_t>(worker)].data();
    if (!backward) return kernels_.attend(a);
    a.d_out = d_mixed_.data() + start * shape_.dim + q * head;
    Bf16* to = d_qkv_.data() + start * width;
    a.d_q = to + q * head;
    a.d_k = to + key_at;
    a.d_v = to + value_at;
    a.cosines = cosines_.data();
    a.sines = sines_.data();
    kernels_.attend_backward(a);
  });
}

void LabPass::mlp(int64_t index) {
  Layer& layer = layers_[static_cast<size_t>(index)];
  const LabLayerTensors& tensors = model_.layers()[static_cast<size_t>(index)];
  const PackedLayer& packed = packed_[static_cast<size_t>(index)];
  const int64_t dim = shape_.dim;
  pool_.parallel_for(tokens_ / kLabChunk, [&](int64_t chunk, int worker) {
    const int64_t from = chunk * kLabChunk, values = kLabChunk * dim;
    float *x = x_.data() + from * dim, *out = scratch_[static_cast<size_t>(worker)].data();
    multiply(layer.mixed.data() + from * dim, dim, packed.out.forward, dim, out);
    kernels_.mix(x, 1, out, 1, values);
    std::memcpy(layer.middle.data() + from * dim, x, static_cast<size_t>(values) * sizeof(float));
    Bf16* normed = layer.mlp_normed.data() + from * dim;
    for (int64_t r = 0; r < kLabChunk; ++r)
      kernels_.norm(x + r * dim, weight(tensors.mlp_norm), shape_.epsilon, dim, normed + r * dim);
    if (shape_.experts == 0) dense_mlp(index, chunk, x, out);
  });
  if (shape_.experts > 0) experts_forward(index);
}

void LabPass::dense_mlp(int64_t index, int64_t chunk, float* x, float* out) {
  Layer& layer = layers_[static_cast<size_t>(index)];
  const PackedLayer& packed = packed_[static_cast<size_t>(index)];
  const int64_t dim = shape_.dim, hidden = shape_.hidden, from = chunk * kLabChunk;
  const auto activate = shape_.gate == LabGate::silu ? kernels_.silu : kernels_.relu;
  const auto* in = reinterpret_cast<const uint32_t*>(layer.mlp_normed.data() + from * dim);
  for (int64_t column = 0; column < hidden; column += kPanel) {  // so that gate and up stay in the first cache
    float* pair = out;
    for (const int64_t at : {column, hidden + column}) {
      kernels_.product({in, dim / 2, 1, packed.gate_up.forward.data() + at * dim / 2, dim / 2 * kPanel, pair, kPanel,
                        kLabChunk, kPanel, dim / 2, false});
      for (int64_t r = 0; r < kLabChunk; ++r)
        kernels_.round(pair + r * kPanel, layer.gate_up.data() + (from + r) * 2 * hidden + at, kPanel);
      pair += kLabChunk * kPanel;
    }
    for (int64_t r = 0; r < kLabChunk; ++r)
      activate(out + r * kPanel, out + (kLabChunk + r) * kPanel, kPanel,
               layer.hidden.data() + (from + r) * hidden + column);
  }
  multiply(layer.hidden.data() + from * hidden, hidden, packed.down.forward, dim, out);
  kernels_.mix(x, 1, out, 1, kLabChunk * dim);
}

void LabPass::head_chunk(int64_t chunk, int worker, const LabBatch& batch, LabLoss& loss, bool backward) {
  const int64_t dim = shape_.dim, vocab = shape_.vocab, from = chunk * kLabChunk;
  const int64_t count = std::min<int64_t>(kLabChunk, std::ssize(loss.rows) - from);
  float* logits = scratch_[static_cast<size_t>(worker)].data();
  Bf16 *in = head_in_.data() + from * dim, *d_logits = d_logits_.data() + from * vocab;
  std::fill_n(in, kLabChunk * dim, Bf16{0});
  for (int64_t r = 0; r < count; ++r)
    kernels_.norm(x_.data() + loss.rows[static_cast<size_t>(from + r)] * dim, weight(model_.final_norm()),
                  shape_.epsilon, dim, in + r * dim);
  multiply(in, dim, packed_embedding_.forward, vocab, logits);
  if (keep_logits_) std::copy_n(logits, count * vocab, keep_logits_->begin() + from * vocab);
  if (backward) std::fill_n(d_logits, kLabChunk * vocab, Bf16{0});
  for (int64_t r = 0; r < count; ++r) {
    const auto at = static_cast<size_t>(from + r), token = static_cast<size_t>(loss.rows[at]);
    const auto share = static_cast<float>(batch.weights[token] / total_weight_);
    loss.losses[at] = kernels_.cross_entropy(logits + r * vocab, vocab, batch.targets[token], share,
                                             &loss.predicted[at], backward ? d_logits + r * vocab : nullptr);
  }
  if (!backward) return;
  pack_factors(model_.embedding(), d_logits, in, chunk, factors_[0]);
  multiply(d_logits, vocab, packed_embedding_.backward, dim, logits);
  float* d_norm = norm_gradients_.data() + chunk * dim;
  std::fill_n(d_norm, dim, 0.0f);
  for (int64_t r = 0; r < count; ++r) {
    const int64_t row = loss.rows[static_cast<size_t>(from + r)] * dim;
    kernels_.norm_backward(x_.data() + row, weight(model_.final_norm()), shape_.epsilon, logits + r * dim, dim,
                           d_x_.data() + row, d_norm);
  }
}

void LabPass::head(const LabBatch& batch, LabLoss& loss, bool backward) {
  total_weight_ = 0;
  for (int64_t t = 0; t < batch.tokens(); ++t) {
    if (batch.weights[static_cast<size_t>(t)] <= 0) continue;
    loss.rows.push_back(t);
    total_weight_ += batch.weights[static_cast<size_t>(t)];
  }
  const int64_t rows = std::ssize(loss.rows), chunks = (rows + kLabChunk - 1) / kLabChunk;
  loss.losses.resize(static_cast<size_t>(rows));
  loss.predicted.resize(static_cast<size_t>(rows));
  head_rows_ = chunks * kLabChunk;
  if (head_rows_ > head_capacity_) {
    head_capacity_ = head_rows_;
    head_in_.resize(static_cast<size_t>(head_rows_ * shape_.dim));
    d_logits_.resize(static_cast<size_t>(head_rows_ * shape_.vocab));
  }
  if (backward) std::fill_n(d_x_.begin(), tokens_ * shape_.dim, 0.0f);
  reserve_factors(model_.embedding(), factors_[0]);
  in_slices(chunks, [&](int64_t first, int64_t count) {
    pool_.parallel_for(count, [&](int64_t i, int worker) { head_chunk(first + i, worker, batch, loss, backward); });
    if (backward) add_gradient(model_.embedding(), factors_[0], count);
  });
  for (int64_t i = 0; i < rows; ++i)
    loss.loss += loss.losses[static_cast<size_t>(i)] *
                 static_cast<double>(batch.weights[static_cast<size_t>(loss.rows[static_cast<size_t>(i)])]);
  loss.weight = total_weight_;
  if (!backward) return;
  add_norm_gradient(model_.final_norm(), chunks);
}

void LabPass::add_norm_gradient(const LabTensor& tensor, int64_t chunks) {
  float* gradient = model_.gradient().data() + tensor.offset;
  for (int64_t chunk = 0; chunk < chunks; ++chunk)
    for (int64_t i = 0; i < shape_.dim; ++i)
      gradient[i] += norm_gradients_[static_cast<size_t>(chunk * shape_.dim + i)];
}

void LabPass::reserve_factors(const LabTensor& tensor, Factors& factors) {
  const auto pairs = static_cast<size_t>(kSlice * kLabChunk / 2);
  factors.left.resize(std::max(factors.left.size(), static_cast<size_t>(tensor.rows) * pairs));
  factors.right.resize(std::max(factors.right.size(), static_cast<size_t>(tensor.columns) * pairs));
}

void LabPass::pack_factors(const LabTensor& tensor, const Bf16* d_out, const Bf16* in, int64_t chunk,
                           Factors& factors) {
  constexpr int64_t kPairs = kSlice * kLabChunk / 2;
  const auto pack = [&](const Bf16* rows, int64_t columns, std::vector<uint32_t>& panels) {
    for (int64_t column = 0; column < columns; column += kPanel)
      kernels_.pack_rows(rows + column, columns, kLabChunk, kPanel,
                         panels.data() + column * kPairs + chunk % kSlice * kLabChunk / 2 * kPanel);
  };
  pack(d_out, tensor.rows, factors.left);
  pack(in, tensor.columns, factors.right);
}

void LabPass::add_gradient(const LabTensor& tensor, const Factors& factors, int64_t chunks) {
  constexpr int64_t kPairs = kSlice * kLabChunk / 2;
  float* gradient = model_.gradient().data() + tensor.offset;
  pool_.parallel_for(tensor.rows / kPanel, [&](int64_t panel, int) {
    kernels_.product({factors.left.data() + panel * kPairs * kPanel, 1, kPanel, factors.right.data(), kPairs * kPanel,
                      gradient + panel * kPanel * tensor.columns, tensor.columns, kPanel, tensor.columns,
                      chunks * kLabChunk / 2, true});
  });
}

void LabPass::weight_gradient(const LabTensor& tensor, const Bf16* d_out, const Bf16* in, int64_t tokens) {
  reserve_factors(tensor, factors_[0]);
  in_slices(tokens / kLabChunk, [&](int64_t first, int64_t count) {
    pool_.parallel_for(count, [&](int64_t i, int) {
      const int64_t from = (first + i) * kLabChunk;
      pack_factors(tensor, d_out + from * tensor.rows, in + from * tensor.columns, i, factors_[0]);
    });
    add_gradient(tensor, factors_[0], count);
  });
}

void LabPass::mlp_backward_chunk(int64_t index, int64_t chunk, int worker) {
  Layer& layer = layers_[static_cast<size_t>(index)];
  const LabLayerTensors& tensors = model_.layers()[static_cast<size_t>(index)];
  const PackedLayer& packed = packed_[static_cast<size_t>(index)];
  const int64_t dim = shape_.dim, from = chunk * kLabChunk;
  float *d_x = d_x_.data() + from * dim, *out = scratch_[static_cast<size_t>(worker)].data();
  if (shape_.experts == 0) dense_mlp_backward(index, chunk, d_x, out);
  if (shape_.experts > 0) out = d_normed_.data() + from * dim;
  float* d_norm = norm_gradients_.data() + chunk * dim;
  std::fill_n(d_norm, dim, 0.0f);
  for (int64_t r = 0; r < kLabChunk; ++r)
    kernels_.norm_backward(layer.middle.data() + (from + r) * dim, weight(tensors.mlp_norm), shape_.epsilon,
                           out + r * dim, dim, d_x + r * dim, d_norm);
  kernels_.round(d_x, d_middle_.data() + from * dim, kLabChunk * dim);
  pack_factors(tensors.out, d_middle_.data() + from * dim, layer.mixed.data() + from * dim, chunk, factors_[2]);
  out = scratch_[static_cast<size_t>(worker)].data();
  multiply(d_middle_.data() + from * dim, dim, packed.out.backward, dim, out);
  kernels_.round(out, d_mixed_.data() + from * dim, kLabChunk * dim);
}

// `out` becomes the gradient of the normed input.
void LabPass::dense_mlp_backward(int64_t index, int64_t chunk, const float* d_x, float* out) {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const LabLayerTensors& tensors = model_.layers()[static_cast<size_t>(index)];
  const PackedLayer& packed = packed_[static_cast<size_t>(index)];
  const int64_t dim = shape_.dim, hidden = shape_.hidden, from = chunk * kLabChunk;
  Bf16 *d_rows = d_rows_.data() + from * dim, *d_gate_up = d_gate_up_.data() + from * 2 * hidden;
  kernels_.round(d_x, d_rows, kLabChunk * dim);
  pack_factors(tensors.down, d_rows, layer.hidden.data() + from * hidden, chunk, factors_[0]);
  multiply(d_rows, dim, packed.down.backward, hidden, out);
  const auto back = shape_.gate == LabGate::silu ? kernels_.silu_backward : kernels_.relu_backward;
  for (int64_t r = 0; r < kLabChunk; ++r) {
    const Bf16* gate = layer.gate_up.data() + (from + r) * 2 * hidden;
    Bf16* d_gate = d_gate_up + r * 2 * hidden;
    back(gate, gate + hidden, out + r * hidden, hidden, d_gate, d_gate + hidden);
  }
  pack_factors(tensors.gate_up, d_gate_up, layer.mlp_normed.data() + from * dim, chunk, factors_[1]);
  multiply(d_gate_up, 2 * hidden, packed.gate_up.backward, dim, out);
}

void LabPass::mlp_backward(int64_t index) {
  const LabLayerTensors& tensors = model_.layers()[static_cast<size_t>(index)];
  const int64_t chunks = tokens_ / kLabChunk;
  if (shape_.experts > 0) experts_backward(index);
  reserve_factors(tensors.down, factors_[0]);
  reserve_factors(tensors.gate_up, factors_[1]);
  reserve_factors(tensors.out, factors_[2]);
  in_slices(chunks, [&](int64_t first, int64_t count) {
    pool_.parallel_for(count, [&](int64_t i, int worker) { mlp_backward_chunk(index, first + i, worker); });
    if (shape_.experts == 0) {
      add_gradient(tensors.down, factors_[0], count);
      add_gradient(tensors.gate_up, factors_[1], count);
    }
    add_gradient(tensors.out, factors_[2], count);
  });
  add_norm_gradient(tensors.mlp_norm, chunks);
}

void LabPass::attention_inputs_backward(int64_t index) {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const LabLayerTensors& tensors = model_.layers()[static_cast<size_t>(index)];
  const int64_t dim = shape_.dim, width = shape_.qkv(), chunks = tokens_ / kLabChunk;
  reserve_factors(tensors.qkv, factors_[0]);
  in_slices(chunks, [&](int64_t first, int64_t count) {
    pool_.parallel_for(count, [&](int64_t i, int worker) {
      const int64_t chunk = first + i, from = chunk * kLabChunk;
      float* out = scratch_[static_cast<size_t>(worker)].data();
      pack_factors(tensors.qkv, d_qkv_.data() + from * width, layer.attention_normed.data() + from * dim, chunk,
                   factors_[0]);
      multiply(d_qkv_.data() + from * width, width, packed_[static_cast<size_t>(index)].qkv.backward, dim, out);
      float* d_norm = norm_gradients_.data() + chunk * dim;
      std::fill_n(d_norm, dim, 0.0f);
      for (int64_t r = 0; r < kLabChunk; ++r)
        kernels_.norm_backward(layer.in.data() + (from + r) * dim, weight(tensors.attention_norm), shape_.epsilon,
                               out + r * dim, dim, d_x_.data() + (from + r) * dim, d_norm);
    });
    add_gradient(tensors.qkv, factors_[0], count);
  });
  add_norm_gradient(tensors.attention_norm, chunks);
}

void LabPass::embed_backward(const LabBatch& batch) {
  const int64_t dim = shape_.dim;
  for (int64_t t = 0; t < batch.tokens(); ++t) {
    float* gradient = model_.gradient().data() + model_.embedding().offset + batch.ids[static_cast<size_t>(t)] * dim;
    for (int64_t i = 0; i < dim; ++i) gradient[i] += d_x_[static_cast<size_t>(t * dim + i)];
  }
}

LabLoss LabPass::run(const LabBatch& batch, bool backward) {
  reserve(batch);
  pack_weights();
  embed(batch);
  for (int64_t i = 0; i < shape_.layers; ++i) {
    attention_inputs(i);
    attention(i, false);
    mlp(i);
  }
  if (backward) std::ranges::fill(model_.gradient(), 0.0f);
  LabLoss loss;
  head(batch, loss, backward);
  for (int64_t i = shape_.layers; backward && i-- > 0;) {
    mlp_backward(i);
    attention(i, true);
    attention_inputs_backward(i);
  }
  if (backward) embed_backward(batch);
  return loss;
}

std::vector<float> LabPass::logits(const LabBatch& batch) {
  std::vector<float> out(
      static_cast<size_t>(std::ranges::count_if(batch.weights, [](float w) { return w > 0; }) * shape_.vocab));
  keep_logits_ = &out;
  run(batch, false);
  keep_logits_ = nullptr;
  return out;
}

}  // namespace millrace
