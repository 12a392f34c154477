#include "learn/blocks/attention.h"

#include <cmath>

namespace millrace {

LabRotations make_rotations(const RopeSpec& rope, int64_t positions) {
  LabRotations out;
  const int64_t half = rope.rotated / 2;
  for (int64_t at = 0; at < positions; ++at) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(at) * std::pow(rope.theta, -static_cast<double>(i) / static_cast<double>(half));
      out.cosines.push_back(static_cast<float>(std::cos(angle)));
      out.sines.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return out;
}

template <typename Factor>
LabAttention<Factor>::LabAttention(const LayerSpec& layer, const LabLayerTensors& tensors,
                                   const LabRotations& rotations)
    : layer_(layer), rotations_(rotations), qkv_(tensors.qkv), out_(tensors.out) {}

template <typename Factor>
void LabAttention<Factor>::reserve(LabWorkspace<Factor>& work, int64_t rows, const LabDocuments& documents) {
  grow(normed_, rows * qkv_.inputs());
  for (auto* buffer : {&qkv_rows_, &work.d_qkv}) grow(*buffer, rows * qkv_.outputs());
  for (auto* buffer : {&mixed_, &work.d_mixed}) grow(*buffer, rows * out_.inputs());
  grow(log_sums_, rows * layer_.heads);
  const int64_t from = documents.tokens, idle = rows - from;
  std::fill_n(mixed_.begin() + from * out_.inputs(), idle * out_.inputs(), Factor{0});
  std::fill_n(work.d_qkv.begin() + from * qkv_.outputs(), idle * qkv_.outputs(), Factor{0});
}

template <typename Factor>
void LabAttention<Factor>::project(LabWorkspace<Factor>& work, LabChunk chunk, const LabDocuments& documents) {
  const int64_t from = chunk.row(), width = qkv_.outputs(), head = layer_.head_dim;
  float* out = work.buffers(chunk.worker).out.data();
  qkv_.forward(work, normed(from), out);
  for (int64_t r = 0; r < kLabChunk; ++r) {
    const int64_t at = documents.positions[static_cast<size_t>(from + r)] * head / 2;
    for (int64_t h = 0; h < layer_.heads + layer_.kv_heads; ++h)
      work.kernels.rotate(out + r * width + h * head, rotations_.cosines.data() + at, rotations_.sines.data() + at,
                          1.0f, head);
  }
  work.kernels.round(out, qkv_rows_.data() + from * width, kLabChunk * width);
}

// The queries that share a key/value head, over one document.
template <typename Factor>
TrainingAttentionOf<Factor> LabAttention<Factor>::head_group(LabWorkspace<Factor>& work, LabDocuments::Span document,
                                                             int64_t kv, int worker) {
  const int64_t width = qkv_.outputs(), head = layer_.head_dim, group = layer_.heads / layer_.kv_heads;
  const int64_t query_at = kv * group * head, key_at = (layer_.heads + kv) * head,
                value_at = key_at + layer_.kv_heads * head;
  const int64_t out_at = document.start * out_.inputs() + query_at;
  TrainingAttentionOf<Factor> a;
  const Factor* from = qkv_rows_.data() + document.start * width;
  a.q = from + query_at;
  a.k = from + key_at;
  a.v = from + value_at;
  a.stride = width;
  a.out_stride = out_.inputs();
  a.tokens = document.length;
  a.heads = group;
  a.dim = head;
  a.out = mixed_.data() + out_at;
  a.log_sums = log_sums_.data() + document.start * layer_.heads + kv * group;
  a.log_stride = layer_.heads;
  a.scratch = work.buffers(worker).attention.data();
  a.d_out = work.d_mixed.data() + out_at;
  Factor* to = work.d_qkv.data() + document.start * width;
  a.d_q = to + query_at;
  a.d_k = to + key_at;
  a.d_v = to + value_at;
  a.cosines = rotations_.cosines.data();
  a.sines = rotations_.sines.data();
  return a;
}

template <typename Factor>
void LabAttention<Factor>::attend(LabWorkspace<Factor>& work, const LabDocuments& documents) {
  work.pool.parallel_for(std::ssize(documents.spans) * layer_.kv_heads, [&](int64_t i, int worker) {
    work.kernels.attend(
        head_group(work, documents.spans[static_cast<size_t>(i / layer_.kv_heads)], i % layer_.kv_heads, worker));
  });
}

template <typename Factor>
void LabAttention<Factor>::output(LabWorkspace<Factor>& work, LabChunk chunk, float* x) {
  float* out = work.buffers(chunk.worker).out.data();
  out_.forward(work, mixed_.data() + chunk.row() * out_.inputs(), out);
  work.kernels.mix(x, 1, out, 1, kLabChunk * out_.outputs());
}

template <typename Factor>
void LabAttention<Factor>::output_backward(LabWorkspace<Factor>& work, LabChunk chunk, const float* d_x,
                                           LabFactors<Factor>& factors) {
  const int64_t at = chunk.row() * out_.inputs();
  LabBuffers<Factor>& buffers = work.buffers(chunk.worker);
  Factor* d_out = buffers.d_out.data();
  work.kernels.round(d_x, d_out, kLabChunk * out_.outputs());
  out_.keep(work, d_out, mixed_.data() + at, chunk, factors);
  out_.backward(work, d_out, buffers.out.data());
  work.kernels.round(buffers.out.data(), work.d_mixed.data() + at, kLabChunk * out_.inputs());
}

template <typename Factor>
void LabAttention<Factor>::attend_backward(LabWorkspace<Factor>& work, const LabDocuments& documents) {
  work.pool.parallel_for(std::ssize(documents.spans) * layer_.kv_heads, [&](int64_t i, int worker) {
    work.kernels.attend_backward(
        head_group(work, documents.spans[static_cast<size_t>(i / layer_.kv_heads)], i % layer_.kv_heads, worker));
  });
}

template <typename Factor>
void LabAttention<Factor>::project_backward(LabWorkspace<Factor>& work, LabChunk chunk, float* d_normed,
                                            LabFactors<Factor>& factors) {
  const Factor* d_qkv = work.d_qkv.data() + chunk.row() * qkv_.outputs();
  qkv_.keep(work, d_qkv, normed(chunk.row()), chunk, factors);
  qkv_.backward(work, d_qkv, d_normed);
}

template class LabAttention<Bf16>;
template class LabAttention<float>;

}  // namespace millrace
