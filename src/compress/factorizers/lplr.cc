// LPLR (Saha et al., 2023, "Matrix Compression via Randomized Low Rank and Low Precision Factorization"): the columns
// of W are sketched by random combinations, B = Q(W Omega) is that sketch as its number format rounds it, and A is the
// rounded solution of the least squares problem min |W - B A|. No decomposition of W is needed: the cost is two
// products of W with a thin matrix. With `power` steps Omega is first multiplied by W^T W, which makes large singular
// values stand out (Halko et al., 2011, "Finding Structure with Randomness").
#include <cmath>

#include "base/philox.h"
#include "compress/calibration/dense_sums.h"
#include "compress/factories.h"
#include "compress/factorizers/factorizer.h"

namespace millrace {
namespace {

constexpr uint64_t kSketchSeed = 20231017;
constexpr int64_t kSketchColumns = 64;  // of W that one thread sums

// Twelve uniform numbers make a nearly normal one, without functions that differ between libraries.
double normal_number(uint64_t stream, uint64_t index) {
  double sum = -6;
  for (uint64_t i = 0; i < 12; ++i) sum += philox_uniform(kSketchSeed, stream, 12 * index + i);
  return sum;
}

class Lplr final : public Factorizer {
 public:
  Lplr(FactorOptions options, int64_t power) : Factorizer(std::move(options)), power_(power) {}
  uint32_t needs() const override { return kNoStatistics; }

 private:
  OutputBasis basis(const PassMatrix& matrix, const LinearStatistics& /*statistics*/, int64_t count,
                    ThreadPool& pool) const override {
    const int64_t cols = matrix.cols;
    std::vector<double> omega(static_cast<size_t>(count * cols));  // [count, cols]
    pool.parallel_for(count, [&](int64_t k, int) {
      for (int64_t c = 0; c < cols; ++c)
        omega[static_cast<size_t>(k * cols + c)] = normal_number(static_cast<uint64_t>(k), static_cast<uint64_t>(c));
    });
    OutputBasis out;
    out.vectors = sketch(matrix, omega, count, pool);
    for (int64_t i = 0; i < power_; ++i) {
      orthonormal_rows(out.vectors, count, matrix.rows);
      omega = transposed_product(matrix, out.vectors, count, pool);
      orthonormal_rows(omega, count, cols);
      out.vectors = sketch(matrix, omega, count, pool);
    }
    // Rows of one length: blocks of B would otherwise have levels for the longest.
    for (int64_t k = 0; k < count; ++k) {
      double* own = out.vectors.data() + k * matrix.rows;
      const double length = std::sqrt(dot_product(own, own, matrix.rows));
      out.found = std::isfinite(length);
      if (!out.found) return out;
      for (int64_t r = 0; r < matrix.rows && length > 0; ++r) own[r] /= length;
    }
    return out;
  }

  // W omega^T, as [count, rows].
  static std::vector<double> sketch(const PassMatrix& matrix, const std::vector<double>& omega, int64_t count,
                                    ThreadPool& pool) {
    std::vector<double> out(static_cast<size_t>(count * matrix.rows));
    pool.parallel_for(matrix.rows, [&](int64_t r, int) {
      for (int64_t k = 0; k < count; ++k)
        out[static_cast<size_t>(k * matrix.rows + r)] =
            dot_product(omega.data() + k * matrix.cols, matrix.values.data() + r * matrix.cols, matrix.cols);
    });
    return out;
  }

  // q W, [count, cols].
  static std::vector<double> transposed_product(const PassMatrix& matrix, const std::vector<double>& q, int64_t count,
                                                ThreadPool& pool) {
    const int64_t cols = matrix.cols;
    std::vector<double> out(static_cast<size_t>(count * cols));
    pool.parallel_for((cols + kSketchColumns - 1) / kSketchColumns, [&](int64_t tile, int) {
      const int64_t begin = tile * kSketchColumns, n = std::min(kSketchColumns, cols - begin);
      for (int64_t r = 0; r < matrix.rows; ++r)
        for (int64_t k = 0; k < count; ++k)
          add_scaled(out.data() + k * cols + begin, q[static_cast<size_t>(k * matrix.rows + r)],
                     matrix.values.data() + r * cols + begin, n);
    });
    return out;
  }

  int64_t power_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_lplr_pass(const OptionValues& options) {
  MILLRACE_TRY(FactorOptions read, read_factor_options(options));
  if (read.loss > 0) return Error::user("loss: a sketch has no singular values to choose a rank by; give a ratio");
  return std::unique_ptr<Pass>(std::make_unique<Lplr>(std::move(read), options.integer("power")));
}

}  // namespace millrace
