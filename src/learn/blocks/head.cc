#include "learn/blocks/head.h"

#include <cstring>

namespace millrace {

template <typename Factor>
LabHead<Factor>::LabHead(const LabModel& model)
    : embedding_(model.embedding()), linear_(model.embedding()), norm_(model.final_norm(), model.spec().norm_eps) {}

template <typename Factor>
void LabHead<Factor>::embed(const LabWorkspace<Factor>& work, const LabBatch& batch, int64_t rows, float* x) const {
  const int64_t width = embedding_.columns;
  for (int64_t t = 0; t < rows; ++t) {
    const int64_t id = t < batch.tokens() ? batch.ids[static_cast<size_t>(t)] : 0;
    std::memcpy(x + t * width, work.weight(embedding_) + id * width, static_cast<size_t>(width) * sizeof(float));
  }
}

template <typename Factor>
void LabHead<Factor>::embed_backward(LabWorkspace<Factor>& work, const LabBatch& batch, const float* d_x) const {
  const int64_t width = embedding_.columns;
  for (int64_t t = 0; t < batch.tokens(); ++t) {
    float* gradient = work.gradient(embedding_) + batch.ids[static_cast<size_t>(t)] * width;
    for (int64_t i = 0; i < width; ++i) gradient[i] += d_x[t * width + i];
  }
}

template <typename Factor>
void LabHead<Factor>::begin(const LabBatch& batch, Run& run) {
  LabLoss& loss = run.loss;
  for (int64_t t = 0; t < batch.tokens(); ++t) {
    if (batch.weights[static_cast<size_t>(t)] <= 0) continue;
    loss.rows.push_back(t);
    loss.weight += batch.weights[static_cast<size_t>(t)];
  }
  loss.losses.resize(loss.rows.size());
  loss.predicted.resize(loss.rows.size());
  rows_ = (std::ssize(loss.rows) + kLabChunk - 1) / kLabChunk * kLabChunk;
  grow(in_, rows_ * embedding_.columns);
  grow(d_logits_, rows_ * embedding_.rows);
  if (run.logits) run.logits->resize(loss.rows.size() * static_cast<size_t>(embedding_.rows));
}

template <typename Factor>
void LabHead<Factor>::chunk_forward(LabWorkspace<Factor>& work, LabChunk chunk, Run& run) {
  const int64_t width = embedding_.columns, vocab = embedding_.rows, from = chunk.row();
  LabLoss& loss = run.loss;
  const int64_t count = std::min<int64_t>(kLabChunk, std::ssize(loss.rows) - from);
  float* logits = work.buffers(chunk.worker).out.data();
  Factor *in = in_.data() + from * width, *d_logits = d_logits_.data() + from * vocab;
  std::fill_n(in, kLabChunk * width, Factor{0});
  for (int64_t r = 0; r < count; ++r)
    norm_.forward(work, run.x + loss.rows[static_cast<size_t>(from + r)] * width, 1, in + r * width);
  linear_.forward(work, in, logits);
  if (run.logits) std::copy_n(logits, count * vocab, run.logits->begin() + from * vocab);
  if (run.d_x) std::fill_n(d_logits, kLabChunk * vocab, Factor{0});
  for (int64_t r = 0; r < count; ++r) {
    const auto at = static_cast<size_t>(from + r), token = static_cast<size_t>(loss.rows[at]);
    const auto share = static_cast<float>(run.batch.weights[token] / loss.weight);
    loss.losses[at] = work.kernels.cross_entropy(logits + r * vocab, vocab, run.batch.targets[token], share,
                                                 &loss.predicted[at], run.d_x ? d_logits + r * vocab : nullptr);
  }
}

template <typename Factor>
void LabHead<Factor>::chunk_backward(LabWorkspace<Factor>& work, LabChunk chunk, const Run& run) {
  const int64_t width = embedding_.columns, from = chunk.row();
  const int64_t count = std::min<int64_t>(kLabChunk, std::ssize(run.loss.rows) - from);
  const Factor* d_logits = d_logits_.data() + from * embedding_.rows;
  float* d_in = work.buffers(chunk.worker).out.data();
  linear_.keep(work, d_logits, in_.data() + from * width, chunk, work.factors[0]);
  linear_.backward(work, d_logits, d_in);
  norm_.begin_chunk(work, chunk);
  for (int64_t r = 0; r < count; ++r) {
    const int64_t row = run.loss.rows[static_cast<size_t>(from + r)] * width;
    norm_.backward(work, chunk, run.x + row, d_in + r * width, 1, run.d_x + row);
  }
}

template <typename Factor>
void LabHead<Factor>::finish(Run& run) const {
  for (size_t i = 0; i < run.loss.rows.size(); ++i)
    run.loss.loss += run.loss.losses[i] * static_cast<double>(run.batch.weights[static_cast<size_t>(run.loss.rows[i])]);
}

template <typename Factor>
LabLoss LabHead<Factor>::forward(LabWorkspace<Factor>& work, const LabBatch& batch, const float* x,
                                 std::vector<float>* logits) {
  Run run{batch, x, nullptr, logits, {}};
  begin(batch, run);
  work.in_chunks(rows_, [&](LabChunk chunk) { chunk_forward(work, chunk, run); });
  finish(run);
  return std::move(run.loss);
}

template <typename Factor>
LabLoss LabHead<Factor>::backward(LabWorkspace<Factor>& work, const LabBatch& batch, const float* x, int64_t rows,
                                  float* d_x) {
  Run run{batch, x, d_x, nullptr, {}};
  begin(batch, run);
  std::fill_n(d_x, rows * embedding_.columns, 0.0f);
  linear_.reserve(work.factors[0]);
  work.in_slices(
      rows_,
      [&](LabChunk chunk) {
        chunk_forward(work, chunk, run);
        chunk_backward(work, chunk, run);
      },
      [&](int64_t chunks) { linear_.add_gradient(work, work.factors[0], chunks); });
  norm_.add_gradient(work, rows_ / kLabChunk);
  finish(run);
  return std::move(run.loss);
}

template class LabHead<Bf16>;
template class LabHead<float>;

}  // namespace millrace
