#include "learn/lab_pass.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "learn/blocks/attention.h"
#include "learn/blocks/head.h"
#include "learn/blocks/mixture.h"

namespace millrace {

class LabPass::Impl {
 public:
  virtual ~Impl() = default;
  virtual LabLoss run(const LabBatch& batch, bool backward, std::vector<float>* logits) = 0;
};

template <typename Factor>
class LabPass::Typed final : public LabPass::Impl {
 public:
  Typed(LabModel& model, ThreadPool& pool, const TrainingKernelsOf<Factor>& kernels);
  LabLoss run(const LabBatch& batch, bool backward, std::vector<float>* logits) override;

 private:
  struct Layer {
    LabNorm<Factor> attention_norm, mlp_norm;
    LabAttention<Factor> attention;
    std::optional<LabGatedMlp<Factor>> mlp;
    std::optional<LabExperts<Factor>> experts;
    LabMlpRows<Factor> mlp_rows;
    std::vector<float> in, middle;  // [rows, width], before attention and before the MLP
  };

  void reserve(const LabBatch& batch);
  void pack();
  void forward(Layer& layer);
  void mlp_backward(Layer& layer);
  void attention_backward(Layer& layer);

  LabModel& model_;
  LabWorkspace<Factor> work_;
  LabRotations rotations_;
  LabHead<Factor> head_;
  std::vector<Layer> layers_;
  LabDocuments documents_;
  int64_t rows_ = 0;  // tokens of the batch, filled up to whole chunks
  std::vector<float> x_, d_x_;
};

template <typename Factor>
LabPass::Typed<Factor>::Typed(LabModel& model, ThreadPool& pool, const TrainingKernelsOf<Factor>& kernels)
    : model_(model),
      work_(model, pool, kernels),
      rotations_(make_rotations(model.spec().ropes[0], model.spec().context)),
      head_(model) {
  const ArchSpec& spec = model.spec();
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const LabLayerTensors& tensors = model.layers()[i];
    Layer layer{LabNorm<Factor>(tensors.attention_norm, spec.norm_eps),
                LabNorm<Factor>(tensors.mlp_norm, spec.norm_eps),
                LabAttention<Factor>(spec.layers[i], tensors, rotations_),
                {},
                {},
                {},
                {},
                {}};
    if (spec.layers[i].moe)
      layer.experts.emplace(spec.activation, spec.layers[i], tensors);
    else
      layer.mlp.emplace(spec.activation, tensors.gate_up, tensors.down);
    layers_.push_back(std::move(layer));
  }
}

template <typename Factor>
void LabPass::Typed<Factor>::reserve(const LabBatch& batch) {
  rows_ = (batch.tokens() + kLabChunk - 1) / kLabChunk * kLabChunk;
  documents_.tokens = batch.tokens();
  documents_.spans.clear();
  documents_.positions.assign(static_cast<size_t>(rows_), 0);
  for (size_t i = 0; i < batch.starts.size(); ++i) {
    const int64_t start = batch.starts[i];
    const int64_t end = i + 1 < batch.starts.size() ? batch.starts[i + 1] : batch.tokens();
    documents_.spans.push_back({start, end - start});
    for (int64_t t = start; t < end; ++t)
      documents_.positions[static_cast<size_t>(t)] = static_cast<int32_t>(t - start);
  }
  const int64_t size = rows_ * work_.width();
  for (Layer& layer : layers_) {
    grow(layer.in, size);
    grow(layer.middle, size);
    layer.attention.reserve(work_, rows_, documents_);
    if (layer.mlp) layer.mlp->reserve(layer.mlp_rows, rows_);
    if (layer.experts) layer.experts->reserve(work_, rows_);
  }
  for (auto* buffer : {&x_, &d_x_}) grow(*buffer, size);
  grow(work_.norm_gradients, size / kLabChunk);
}

template <typename Factor>
void LabPass::Typed<Factor>::pack() {
  std::vector<LabLinear<Factor>*> linears = head_.linears();
  const auto add = [&](const std::vector<LabLinear<Factor>*>& more) {
    linears.insert(linears.end(), more.begin(), more.end());
  };
  for (Layer& layer : layers_) {
    add(layer.attention.linears());
    if (layer.mlp) add(layer.mlp->linears());
    if (layer.experts) add(layer.experts->linears());
  }
  work_.pool.parallel_for(std::ssize(linears), [&](int64_t i, int) { linears[static_cast<size_t>(i)]->pack(work_); });
}

template <typename Factor>
void LabPass::Typed<Factor>::forward(Layer& layer) {
  const int64_t width = work_.width(), values = kLabChunk * width;
  const auto bytes = static_cast<size_t>(values) * sizeof(float);
  work_.in_chunks(rows_, [&](LabChunk chunk) {
    const float* x = x_.data() + chunk.row() * width;
    std::memcpy(layer.in.data() + chunk.row() * width, x, bytes);
    layer.attention_norm.forward(work_, x, kLabChunk, layer.attention.normed(chunk.row()));
    layer.attention.project(work_, chunk, documents_);
  });
  layer.attention.attend(work_, documents_);
  work_.in_chunks(rows_, [&](LabChunk chunk) {
    float* x = x_.data() + chunk.row() * width;
    layer.attention.output(work_, chunk, x);
    std::memcpy(layer.middle.data() + chunk.row() * width, x, bytes);
    Factor* normed = layer.mlp ? layer.mlp->in(layer.mlp_rows, chunk.row()) : layer.experts->in(chunk.row());
    layer.mlp_norm.forward(work_, x, kLabChunk, normed);
    if (!layer.mlp) return;
    float* out = work_.buffers(chunk.worker).out.data();
    layer.mlp->forward(work_, layer.mlp_rows, chunk, out);
    work_.kernels.mix(x, 1, out, 1, values);
  });
  if (layer.experts) layer.experts->forward(work_, rows_, x_.data());
}

// Through the MLP, its norm and the attention's output, for a chunk at a time.
template <typename Factor>
void LabPass::Typed<Factor>::mlp_backward(Layer& layer) {
  const int64_t width = work_.width();
  if (layer.experts) layer.experts->backward(work_, rows_, d_x_.data());
  if (layer.mlp) {
    layer.mlp->down().reserve(work_.factors[0]);
    layer.mlp->gate_up().reserve(work_.factors[1]);
  }
  layer.attention.out().reserve(work_.factors[2]);
  work_.in_slices(
      rows_,
      [&](LabChunk chunk) {
        float *d_x = d_x_.data() + chunk.row() * width, *d_normed = work_.buffers(chunk.worker).out.data();
        if (layer.mlp)
          layer.mlp->backward(work_, layer.mlp_rows, chunk, chunk, d_x, d_normed, work_.factors[0], work_.factors[1]);
        else
          d_normed = work_.d_normed.data() + chunk.row() * width;
        layer.mlp_norm.begin_chunk(work_, chunk);
        layer.mlp_norm.backward(work_, chunk, layer.middle.data() + chunk.row() * width, d_normed, kLabChunk, d_x);
        layer.attention.output_backward(work_, chunk, d_x, work_.factors[2]);
      },
      [&](int64_t chunks) {
        if (layer.mlp) {
          layer.mlp->down().add_gradient(work_, work_.factors[0], chunks);
          layer.mlp->gate_up().add_gradient(work_, work_.factors[1], chunks);
        }
        layer.attention.out().add_gradient(work_, work_.factors[2], chunks);
      });
  layer.mlp_norm.add_gradient(work_, rows_ / kLabChunk);
}

template <typename Factor>
void LabPass::Typed<Factor>::attention_backward(Layer& layer) {
  const int64_t width = work_.width();
  LabFactors<Factor>& factors = work_.factors[0];
  layer.attention.attend_backward(work_, documents_);
  layer.attention.qkv().reserve(factors);
  work_.in_slices(
      rows_,
      [&](LabChunk chunk) {
        float* d_normed = work_.buffers(chunk.worker).out.data();
        layer.attention.project_backward(work_, chunk, d_normed, factors);
        layer.attention_norm.begin_chunk(work_, chunk);
        layer.attention_norm.backward(work_, chunk, layer.in.data() + chunk.row() * width, d_normed, kLabChunk,
                                      d_x_.data() + chunk.row() * width);
      },
      [&](int64_t chunks) { layer.attention.qkv().add_gradient(work_, factors, chunks); });
  layer.attention_norm.add_gradient(work_, rows_ / kLabChunk);
}

template <typename Factor>
LabLoss LabPass::Typed<Factor>::run(const LabBatch& batch, bool backward, std::vector<float>* logits) {
  reserve(batch);
  pack();
  head_.embed(work_, batch, rows_, x_.data());
  for (Layer& layer : layers_) forward(layer);
  if (!backward) return head_.forward(work_, batch, x_.data(), logits);
  std::ranges::fill(model_.gradient(), 0.0f);
  LabLoss loss = head_.backward(work_, batch, x_.data(), rows_, d_x_.data());
  for (size_t i = layers_.size(); i-- > 0;) {
    mlp_backward(layers_[i]);
    attention_backward(layers_[i]);
  }
  head_.embed_backward(work_, batch, d_x_.data());
  return loss;
}

LabPass::LabPass(LabModel& model, ThreadPool& pool, const TrainingKernels& kernels)
    : impl_(std::make_unique<Typed<Bf16>>(model, pool, kernels)) {}

LabPass::LabPass(LabModel& model, ThreadPool& pool, const ExactTrainingKernels& kernels)
    : impl_(std::make_unique<Typed<float>>(model, pool, kernels)) {}

LabPass::~LabPass() = default;

LabLoss LabPass::run(const LabBatch& batch, bool backward) { return impl_->run(batch, backward, nullptr); }

std::vector<float> LabPass::logits(const LabBatch& batch) {
  std::vector<float> out;
  impl_->run(batch, false, &out);
  return out;
}

}  // namespace millrace
