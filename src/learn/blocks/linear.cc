#include "learn/blocks/linear.h"

namespace millrace {

template <typename Factor>
void LabLinear<Factor>::pack(const LabWorkspace<Factor>& work) {
  const int64_t rows = tensor_.rows, columns = tensor_.columns, size = rows * columns;
  grow(rounded_, size);
  grow(forward_, size / 2);
  grow(backward_, size / 2);
  work.kernels.round(work.weight(tensor_), rounded_.data(), size);
  work.kernels.pack_columns(rounded_.data(), columns, rows, columns, forward_.data());
  work.kernels.pack_rows(rounded_.data(), columns, rows, columns, backward_.data());
}

template <typename Factor>
void LabLinear<Factor>::multiply(const LabWorkspace<Factor>& work, const Factor* rows, int64_t inner,
                                 const Pair* panels, int64_t columns, float* out) const {
  work.kernels.product({reinterpret_cast<const Pair*>(rows), inner / 2, 1, panels, inner / 2 * kLabPanel, out, columns,
                        kLabChunk, columns, inner / 2, false});
}

template <typename Factor>
void LabLinear<Factor>::forward(const LabWorkspace<Factor>& work, const Factor* in, float* out) const {
  multiply(work, in, inputs(), forward_.data(), outputs(), out);
}

template <typename Factor>
void LabLinear<Factor>::forward_panel(const LabWorkspace<Factor>& work, const Factor* in, int64_t column,
                                      float* out) const {
  multiply(work, in, inputs(), forward_.data() + column * inputs() / 2, kLabPanel, out);
}

template <typename Factor>
void LabLinear<Factor>::backward(const LabWorkspace<Factor>& work, const Factor* d_out, float* d_in) const {
  multiply(work, d_out, outputs(), backward_.data(), inputs(), d_in);
}

constexpr int64_t kSlicePairs = kLabSlice * kLabChunk / 2;

template <typename Factor>
void LabLinear<Factor>::reserve(LabFactors<Factor>& factors) const {
  grow(factors.left, outputs() * kSlicePairs);
  grow(factors.right, inputs() * kSlicePairs);
}

template <typename Factor>
void LabLinear<Factor>::keep(const LabWorkspace<Factor>& work, const Factor* d_out, const Factor* in, LabChunk chunk,
                             LabFactors<Factor>& factors) const {
  const auto pack = [&](const Factor* rows, int64_t columns, std::vector<Pair>& panels) {
    for (int64_t column = 0; column < columns; column += kLabPanel)
      work.kernels.pack_rows(
          rows + column, columns, kLabChunk, kLabPanel,
          panels.data() + column * kSlicePairs + chunk.index % kLabSlice * kLabChunk / 2 * kLabPanel);
  };
  pack(d_out, outputs(), factors.left);
  pack(in, inputs(), factors.right);
}

// gradient += left^T right.
template <typename Factor>
void LabLinear<Factor>::add_gradient(LabWorkspace<Factor>& work, const LabFactors<Factor>& factors,
                                     int64_t chunks) const {
  float* gradient = work.gradient(tensor_);
  work.pool.parallel_for(outputs() / kLabPanel, [&](int64_t panel, int) {
    work.kernels.product({factors.left.data() + panel * kSlicePairs * kLabPanel, 1, kLabPanel, factors.right.data(),
                          kSlicePairs * kLabPanel, gradient + panel * kLabPanel * inputs(), inputs(), kLabPanel,
                          inputs(), chunks * kLabChunk / 2, true});
  });
}

template class LabLinear<Bf16>;
template class LabLinear<float>;

}  // namespace millrace
