#include "learn/blocks/norm.h"

namespace millrace {

template <typename Factor>
void LabNorm<Factor>::forward(const LabWorkspace<Factor>& work, const float* x, int64_t rows, Factor* out) const {
  const int64_t width = tensor_.columns;
  for (int64_t r = 0; r < rows; ++r)
    work.kernels.norm(x + r * width, work.weight(tensor_), epsilon_, width, out + r * width);
}

template <typename Factor>
void LabNorm<Factor>::begin_chunk(LabWorkspace<Factor>& work, LabChunk chunk) const {
  std::fill_n(work.norm_gradients.data() + chunk.index * tensor_.columns, tensor_.columns, 0.0f);
}

template <typename Factor>
void LabNorm<Factor>::backward(LabWorkspace<Factor>& work, LabChunk chunk, const float* x, const float* d_out,
                               int64_t rows, float* d_x) const {
  const int64_t width = tensor_.columns;
  float* d_weight = work.norm_gradients.data() + chunk.index * width;
  for (int64_t r = 0; r < rows; ++r)
    work.kernels.norm_backward(x + r * width, work.weight(tensor_), epsilon_, d_out + r * width, width, d_x + r * width,
                               d_weight);
}

template <typename Factor>
void LabNorm<Factor>::add_gradient(LabWorkspace<Factor>& work, int64_t chunks) const {
  float* gradient = work.gradient(tensor_);
  for (int64_t chunk = 0; chunk < chunks; ++chunk)
    for (int64_t i = 0; i < tensor_.columns; ++i)
      gradient[i] += work.norm_gradients[static_cast<size_t>(chunk * tensor_.columns + i)];
}

template class LabNorm<Bf16>;
template class LabNorm<float>;

}  // namespace millrace
