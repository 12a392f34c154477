#include "compress/neurons/low_rank_signs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "compress/calibration/second_moments.h"
#include "compress/rounding/triangle_factor.h"
#include "kernels/activation.h"
#include "kernels/linear.h"

namespace millrace {
namespace {

constexpr int kIterations = 4;  // of the subspace
constexpr int64_t kSolvedColumns = 512;

// y [rows of x][m.rows] = x m^T
Result<std::vector<float>> times_rows(const Weight& m, const std::vector<float>& x, const KernelTable& table,
                                      ThreadPool& pool) {
  const int64_t rows = std::ssize(x) / m.cols;
  MILLRACE_TRY(AlignedBuffer rounded,
               AlignedBuffer::allocate(rows * activation_row_bytes(m.format->activation, m.cols), "neuron fit"));
  std::vector<float> y(static_cast<size_t>(rows * m.rows));
  linear(pool, m, encode_activations(table, pool, m.format->activation, x.data(), m.cols, rows, m.cols, rounded.data()),
         y.data(), m.rows);
  return y;
}

Result<Weight> packed_f32(const std::vector<float>& values, int64_t rows, const KernelTable& table, ThreadPool& pool) {
  Weight out;
  out.name = "neuron fit";
  out.format = find_format("f32");
  out.rows = rows;
  out.cols = std::ssize(values) / rows;
  out.data = reinterpret_cast<const uint8_t*>(values.data());
  MILLRACE_TRY_VOID(pack_weight(out, table, pool));
  return out;
}

// X^T S [width][hidden] of signs without their mean.
std::vector<float> sign_moments(const LayerSamples& samples, int64_t tokens, int64_t width, int64_t hidden,
                                const KernelTable& table, ThreadPool& pool) {
  std::vector<float> out(static_cast<size_t>(width * hidden)), means(static_cast<size_t>(hidden));
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t n = 0; n < hidden; ++n)
      means[static_cast<size_t>(n)] += samples.active[static_cast<size_t>(t * hidden + n)];
  for (float& mean : means) mean /= static_cast<float>(tokens);
  std::vector<float> signs(static_cast<size_t>(hidden));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t n = 0; n < hidden; ++n)
      signs[static_cast<size_t>(n)] =
          static_cast<float>(samples.active[static_cast<size_t>(t * hidden + n)]) - means[static_cast<size_t>(n)];
    const float* const x = samples.inputs.data() + t * width;
    pool.parallel_for((width + 63) / 64, [&](int64_t block, int) {
      for (int64_t i = block * 64; i < std::min(width, block * 64 + 64); ++i)
        table.add_scaled(signs.data(), x[i], out.data() + i * hidden, hidden);
    });
  }
  return out;
}

// m = R^-1 m, for m [width][hidden].
void solve_rows(const TriangleFactor& factor, std::vector<float>& m, int64_t hidden, const KernelTable& table,
                ThreadPool& pool) {
  const int64_t width = factor.size();
  pool.parallel_for((hidden + kSolvedColumns - 1) / kSolvedColumns, [&](int64_t block, int) {
    const int64_t begin = block * kSolvedColumns, count = std::min(kSolvedColumns, hidden - begin);
    for (int64_t i = width; i-- > 0;) {
      float* const own = m.data() + i * hidden + begin;
      for (int64_t j = i + 1; j < width; ++j)
        table.add_scaled(m.data() + j * hidden + begin, -static_cast<float>(factor.row(i)[j - i]), own, count);
      table.scale(own, static_cast<float>(1 / factor.diagonal(i)), count);
    }
  });
}

// Makes the rows of q orthonormal (modified Gram-Schmidt, twice).
void make_orthonormal(std::vector<float>& q, int64_t rank, int64_t width) {
  const auto row = [&](int64_t k) { return q.data() + k * width; };
  const auto dot = [&](const float* a, const float* b) {
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    return sum;
  };
  for (int64_t k = 0; k < rank; ++k) {
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t j = 0; j < k; ++j) {
        const auto share = static_cast<float>(dot(row(j), row(k)));
        for (int64_t i = 0; i < width; ++i) row(k)[i] -= share * row(j)[i];
      }
    const double length = std::sqrt(dot(row(k), row(k)));
    const float scale = length > 1e-30 ? static_cast<float>(1 / length) : 0.0f;
    for (int64_t i = 0; i < width; ++i) row(k)[i] *= scale;
  }
}

// Rows a with a R = u.
std::vector<float> solve_left(const TriangleFactor& factor, const std::vector<float>& u, int64_t rank,
                              ThreadPool& pool) {
  const int64_t width = factor.size();
  std::vector<float> out(u.size());
  pool.parallel_for(rank, [&](int64_t k, int) {
    std::vector<double> left(u.begin() + k * width, u.begin() + (k + 1) * width);
    for (int64_t i = 0; i < width; ++i) {
      const double a = left[static_cast<size_t>(i)] / factor.diagonal(i);
      out[static_cast<size_t>(k * width + i)] = static_cast<float>(a);
      for (int64_t j = i + 1; j < width; ++j) left[static_cast<size_t>(j)] -= a * factor.row(i)[j - i];
    }
  });
  return out;
}

std::vector<float> transposed(const std::vector<float>& m, int64_t rows) {
  const int64_t cols = std::ssize(m) / rows;
  std::vector<float> out(m.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) out[static_cast<size_t>(j * rows + i)] = m[static_cast<size_t>(i * cols + j)];
  return out;
}

}  // namespace

Result<void> fit_low_rank_signs(const LayerSamples& samples, int64_t tokens, int64_t width, int64_t hidden,
                                int64_t rank, double damping, const KernelTable& table, ThreadPool& pool,
                                NeuronProfile& profile) {
  SecondMoments moments(width);
  MILLRACE_TRY_VOID(moments.add(samples.inputs.data(), tokens, table, pool));
  std::vector<int32_t> order(static_cast<size_t>(width));
  std::iota(order.begin(), order.end(), 0);
  TriangleFactor factor;
  if (!factor.factor(moments, order, damping * std::max(1e-12, moments.diagonal_mean()), pool))
    return Error::internal("the inputs of an MLP have no positive definite moments; use a longer text");
  std::vector<float> m = sign_moments(samples, tokens, width, hidden, table, pool);
  solve_rows(factor, m, hidden, table, pool);
  MILLRACE_TRY(const Weight by_width, packed_f32(m, width, table, pool));
  m = transposed(m, width);
  MILLRACE_TRY(const Weight by_hidden, packed_f32(m, hidden, table, pool));
  m = {};
  std::mt19937_64 random(1);
  std::vector<float> u(static_cast<size_t>(rank * width)), z;
  for (float& value : u) value = static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-52 - 1);
  for (int i = 0; i < kIterations; ++i) {
    make_orthonormal(u, rank, width);
    MILLRACE_TRY(z, times_rows(by_hidden, u, table, pool));
    MILLRACE_TRY(u, times_rows(by_width, z, table, pool));
  }
  make_orthonormal(u, rank, width);
  MILLRACE_TRY(z, times_rows(by_hidden, u, table, pool));
  profile.a = solve_left(factor, u, rank, pool);
  profile.b = transposed(z, rank);
  return {};
}

}  // namespace millrace
