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
  TrainingAdam a;
  a.gradient = model_.gradient().data() + part.offset;
  a.first = first.data() + part.offset;
  a.second = second.data() + part.offset;
  a.weights = model_.weights().data() + part.offset;
  a.n = part.rows * part.columns;
  a.scale = scale;
  a.beta1 = kBeta1;
  a.beta2 = kBeta2;
  a.epsilon = kAdamEpsilon;
  a.step = static_cast<float>(rate / (1 - std::pow(kBeta1, t)));
  a.correction = static_cast<float>(1 / (1 - std::pow(kBeta2, t)));
  kernels_.adam(a);
}

// x becomes the nearest matrix with all singular values about 1: five times x = a x + (b s + c s s) x, where s = x x^T,
// or from the right with s = x^T x if that is the smaller one. The coefficients are Jordan's.
void LabOptimizer::orthogonalize(float* x, int64_t rows, int64_t columns, int worker) {
  Scratch& s = scratch_[static_cast<size_t>(worker)];
  const int64_t size = rows * columns, side = std::min(rows, columns);
  const bool tall = rows > columns;
  kernels_.mix(x, static_cast<float>(1 / (std::sqrt(kernels_.squares(x, size)) + 1e-7)), x, 0, size);
  Bf16 *rounded = at_least(s.rounded, size), *small = at_least(s.small, side * side);
  uint32_t *panels = at_least(s.panels, size / 2), *small_panels = at_least(s.small_panels, side * side / 2);
  float *square = at_least(s.square, side * side), *squared = at_least(s.squared, side * side),
        *update = at_least(s.update, size);
  for (int i = 0; i < 5; ++i) {
    kernels_.round(x, rounded, size);
    if (tall) {
      const int64_t panel = rows / 2 * kPanelColumns;
      kernels_.pack_rows(rounded, columns, rows, columns, panels);
      for (int64_t at = 0; at < side; at += kPanelColumns)
        kernels_.product({panels + at / kPanelColumns * panel, 1, kPanelColumns, panels, panel, square + at * side,
                          side, kPanelColumns, side, rows / 2, false});
    } else {
      kernels_.pack_columns(rounded, columns, rows, columns, panels);
      kernels_.product({as_pairs(rounded), columns / 2, 1, panels, columns / 2 * kPanelColumns, square, side, side,
                        side, columns / 2, false});
      kernels_.pack_rows(rounded, columns, rows, columns, panels);
    }
    const int64_t small_panel = side / 2 * kPanelColumns;
    kernels_.round(square, small, side * side);
    kernels_.pack_rows(small, side, side, side, small_panels);
    kernels_.product(
        {as_pairs(small), side / 2, 1, small_panels, small_panel, squared, side, side, side, side / 2, false});
    kernels_.mix(square, -4.7750f, squared, 2.0315f, side * side);
    kernels_.round(square, small, side * side);
    if (tall) {
      kernels_.pack_rows(small, side, side, side, small_panels);
      kernels_.product({as_pairs(rounded), columns / 2, 1, small_panels, small_panel, update, columns, rows, columns,
                        side / 2, false});
    } else {
      kernels_.product({as_pairs(small), side / 2, 1, panels, rows / 2 * kPanelColumns, update, columns, rows, columns,
                        side / 2, false});
    }
    kernels_.mix(x, 3.4445f, update, 1, size);
  }
}

void LabOptimizer::muon(const Part& part, double rate, float scale, int worker) {
  const int64_t rows = part.rows, columns = part.columns, size = rows * columns;
  float* x = at_least(scratch_[static_cast<size_t>(worker)].x, size);
  const float* gradient = model_.gradient().data() + part.offset;
  float* momentum = first.data() + part.offset;
  kernels_.mix(momentum, kMomentum, gradient, (1 - kMomentum) * scale, size);
  std::copy_n(momentum, size, x);
  kernels_.mix(x, kMomentum, gradient, (1 - kMomentum) * scale, size);
  orthogonalize(x, rows, columns, worker);
  const double ratio = static_cast<double>(rows) / static_cast<double>(columns);
  const auto step = static_cast<float>(rate * std::sqrt(std::max(1.0, ratio)));
  kernels_.mix(model_.weights().data() + part.offset, static_cast<float>(1 - rate * rates_.decay), x, -step, size);
}

double LabOptimizer::step(double schedule) {
  ++steps;
  const double norm = std::sqrt(kernels_.squares(model_.gradient().data(), std::ssize(model_.gradient())));
  const auto scale = static_cast<float>(norm > rates_.clip ? rates_.clip / norm : 1.0);
  pool_.parallel_for(std::ssize(parts_), [&](int64_t i, int worker) {
    const Part& part = parts_[static_cast<size_t>(i)];
    if (part.muon) return muon(part, rates_.muon * schedule, scale, worker);
    adam(part, rates_.adam * schedule, scale);
  });
  return norm;
}

}  // namespace millrace
