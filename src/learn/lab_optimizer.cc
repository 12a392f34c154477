#include "learn/lab_optimizer.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

constexpr float kBeta1 = 0.9f, kBeta2 = 0.95f, kAdamEpsilon = 1e-8f, kMomentum = 0.95f;
constexpr int64_t kPanelColumns = 32;

template <typename T>
T* at_least(std::vector<T>& buffer, int64_t count) {
  if (std::ssize(buffer) < count) buffer.resize(static_cast<size_t>(count));
  return buffer.data();
}

const uint32_t* as_pairs(const Bf16* values) { return reinterpret_cast<const uint32_t*>(values); }

}  // namespace

LabOptimizer::LabOptimizer(LabModel& model, ThreadPool& pool, const TrainingKernels& kernels, const LabRates& rates)
    : first(model.weights().size()),
      second(model.weights().size()),
      model_(model),
      pool_(pool),
      kernels_(kernels),
      rates_(rates),
      scratch_(static_cast<size_t>(pool.threads())) {
  for (const LabTensor& tensor : model.tensors()) {
    int64_t row = 0;
    for (int64_t rows : tensor.parts) {
      parts_.push_back({tensor.offset + row * tensor.columns, rows, tensor.columns, tensor.matrix});
      row += rows;
    }
  }
  // The largest first, so that threads finish together.
  std::ranges::stable_sort(parts_, [](const Part& a, const Part& b) {
    return std::pair(a.muon, a.rows * a.columns) > std::pair(b.muon, b.rows * b.columns);
  });
}

void LabOptimizer::adam(const Part& part, double rate, float scale) {
  const auto t = static_cast<double>(steps);
  const auto step = static_cast<float>(rate / (1 - std::pow(kBeta1, t)));
  const auto correction = static_cast<float>(1 / (1 - std::pow(kBeta2, t)));
  float* weights = model_.weights().data() + part.offset;
  const float* gradient = model_.gradient().data() + part.offset;
  float *m = first.data() + part.offset, *v = second.data() + part.offset;
  for (int64_t i = 0; i < part.rows * part.columns; ++i) {
    const float g = gradient[i] * scale;
    m[i] = kBeta1 * m[i] + (1 - kBeta1) * g;
    v[i] = kBeta2 * v[i] + (1 - kBeta2) * g * g;
    weights[i] -= step * m[i] / (std::sqrt(v[i] * correction) + kAdamEpsilon);
  }
}

// x becomes the nearest matrix with all singular values about 1; rows <= columns. The coefficients are Jordan's.
void LabOptimizer::orthogonalize(float* x, int64_t rows, int64_t columns, int worker) {
  Scratch& s = scratch_[static_cast<size_t>(worker)];
  const int64_t size = rows * columns;
  double squares = 0;
  for (int64_t i = 0; i < size; ++i) squares += static_cast<double>(x[i]) * x[i];
  const auto inverse = static_cast<float>(1 / (std::sqrt(squares) + 1e-7));
  for (int64_t i = 0; i < size; ++i) x[i] *= inverse;
  Bf16 *rounded = at_least(s.rounded, size), *small = at_least(s.small, rows * rows);
  uint32_t *panels = at_least(s.panels, size / 2), *small_panels = at_least(s.small_panels, rows * rows / 2);
  float *square = at_least(s.square, rows * rows), *squared = at_least(s.squared, rows * rows),
        *update = at_least(s.update, size);
  for (int i = 0; i < 5; ++i) {
    kernels_.round(x, rounded, size);
    kernels_.pack_columns(rounded, columns, rows, columns, panels);
    kernels_.product({as_pairs(rounded), columns / 2, 1, panels, columns / 2 * kPanelColumns, square, rows, rows, rows,
                      columns / 2, false});
    kernels_.round(square, small, rows * rows);
    kernels_.pack_columns(small, rows, rows, rows, small_panels);
    kernels_.product({as_pairs(small), rows / 2, 1, small_panels, rows / 2 * kPanelColumns, squared, rows, rows, rows,
                      rows / 2, false});
    for (int64_t j = 0; j < rows * rows; ++j) square[j] = -4.7750f * square[j] + 2.0315f * squared[j];
    kernels_.round(square, small, rows * rows);
    kernels_.pack_rows(rounded, columns, rows, columns, panels);
    kernels_.product({as_pairs(small), rows / 2, 1, panels, rows / 2 * kPanelColumns, update, columns, rows, columns,
                      rows / 2, false});
    for (int64_t j = 0; j < size; ++j) x[j] = 3.4445f * x[j] + update[j];
  }
}

void LabOptimizer::muon(const Part& part, double rate, float scale, int worker) {
  const int64_t rows = part.rows, columns = part.columns, size = rows * columns;
  const bool tall = rows > columns;
  float* x = at_least(scratch_[static_cast<size_t>(worker)].x, size);
  const float* gradient = model_.gradient().data() + part.offset;
  float* momentum = first.data() + part.offset;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t i = r * columns + c;
      const float g = gradient[i] * scale;
      momentum[i] += (1 - kMomentum) * (g - momentum[i]);
      x[tall ? c * rows + r : i] = g + kMomentum * (momentum[i] - g);
    }
  }
  orthogonalize(x, std::min(rows, columns), std::max(rows, columns), worker);
  const double ratio = static_cast<double>(rows) / static_cast<double>(columns);
  const auto step = static_cast<float>(rate * std::sqrt(std::max(1.0, ratio)));
  const auto keep = static_cast<float>(1 - rate * rates_.decay);
  float* weights = model_.weights().data() + part.offset;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t i = r * columns + c;
      weights[i] = weights[i] * keep - step * x[tall ? c * rows + r : i];
    }
  }
}

double LabOptimizer::step(double schedule) {
  ++steps;
  double squares = 0;
  for (float g : model_.gradient()) squares += static_cast<double>(g) * g;
  const double norm = std::sqrt(squares);
  const auto scale = static_cast<float>(norm > rates_.clip ? rates_.clip / norm : 1.0);
  pool_.parallel_for(std::ssize(parts_), [&](int64_t i, int worker) {
    const Part& part = parts_[static_cast<size_t>(i)];
    if (part.muon) return muon(part, rates_.muon * schedule, scale, worker);
    adam(part, rates_.adam * schedule, scale);
  });
  return norm;
}

}  // namespace millrace
