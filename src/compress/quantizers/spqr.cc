// SpQR (Dettmers et al., 2023, "SpQR: A Sparse-Quantized Representation for Near-Lossless LLM Weight Compression"):
// single weights that would cost most when rounded stay exact in a sparse matrix; the others are rounded by GPTQ in
// small groups whose scales and minimums are rounded, too (the K formats: 16 or 32 values with 4 or 6 bits each).
//
// A weight's sensitivity is what its group's error E falls by once it is left out, of its range as well:
//
//   E(group) = sum of (w - quant(w))^2 / [H^-1]_jj      gain_i = E(group) - E(group without i)
//
// The paper has a threshold for the gain; here it is the `part` of the matrix's weights with the largest ones. Outliers
// are not rounded, and take the values that make up for the errors before them. Of equal gains the first weight counts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compress/factories.h"
#include "compress/matrix_parts.h"
#include "compress/output/preview.h"
#include "compress/rounding/column_rounding.h"
#include "compress/rounding/level_scales.h"
#include "compress/rounding/symmetric_inverse.h"

namespace millrace {
namespace {

struct SpqrOptions {
  const Format* format = nullptr;
  double part = 0;
  double damp = 0.01;
  RoundingOptions rounding;
};

// The gains of a group's weights under levels that cover its range evenly.
class GroupGains {
 public:
  GroupGains(const float* values, const double* weights, int64_t size, int levels)
      : values_(values), weights_(weights), size_(size), levels_(levels) {}

  void fill(double* gains) const {
    const auto [low, high] = std::minmax_element(values_, values_ + size_);
    const int64_t least = low - values_, most = high - values_;
    std::vector<double> own(static_cast<size_t>(size_));
    const double all = error(-1, own.data());
    for (int64_t i = 0; i < size_; ++i)  // the range stays if another weight leaves
      gains[i] = i == least || i == most ? all - error(i, nullptr) : own[static_cast<size_t>(i)];
  }

 private:
  // Without weight `left_out`; `own`: of each weight.
  double error(int64_t left_out, double* own) const {
    float low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < size_; ++i) {
      if (i == left_out) continue;
      low = std::min(low, values_[i]);
      high = std::max(high, values_[i]);
    }
    const double step = (double{high} - low) / (levels_ - 1);
    double sum = 0;
    for (int64_t i = 0; i < size_; ++i) {
      if (i == left_out) continue;
      const double level = step > 0 ? std::round((double{values_[i]} - low) / step) : 0;
      const double difference = values_[i] - (low + level * step);
      const double cost = weights_[i] * difference * difference;
      if (own) own[i] = cost;
      sum += cost;
    }
    return sum;
  }

  const float* values_;
  const double* weights_;
  int64_t size_;
  int levels_;
};

class Spqr final : public Pass {
 public:
  explicit Spqr(const SpqrOptions& options) : options_(options) {}

  uint32_t needs() const override { return kSecondMoments; }
  std::string format() const override { return std::string(options_.format->name); }
  int64_t working_bytes(int64_t rows, int64_t cols) const override {
    const auto outliers = static_cast<int64_t>(options_.part * static_cast<double>(rows * cols));
    return ColumnFactor::bytes(cols) + cols * cols * 8 + rows * cols * (8 + 4 + 1) + outliers * 8;
  }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    PassPreview out = preview_levels(matrix);
    if (out.action == "left") return out;
    if (!matrix.parts.input.empty()) return preview_left("its inputs are changed already");
    if (!matrix.parts.sparse.empty()) return preview_left("it has a sparse matrix already");
    const auto count = static_cast<int64_t>(options_.part * static_cast<double>(matrix.rows * matrix.cols));
    if (count > 0 && matrix.no_parts.empty()) preview_sparse(matrix, count);
    return out;
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (const std::string why = why_without_levels(matrix); !why.empty()) return PassRow{"left", why, {}};
    if (!matrix.parts.input.empty()) return PassRow{"left", "its inputs are changed already", {}};
    if (!matrix.parts.sparse.empty()) return PassRow{"left", "it has a sparse matrix already", {}};
    if (!factor_.prepare(matrix, statistics, options_.damp, false, pool))
      return PassRow{"left", "its inputs are all zero or not finite", {}};
    const auto count = static_cast<int64_t>(options_.part * static_cast<double>(matrix.values.size()));
    std::vector<uint8_t> exact;
    if (count > 0 && matrix.no_parts.empty()) {
      MILLRACE_TRY(const std::vector<double> weights, sensitivities(statistics.id, pool));
      exact = outliers(matrix, weights, count, pool);
    }
    round_columns(matrix, factor_.factor(), factor_.order(), options_.rounding, exact, pool);
    if (!exact.empty()) add_sparse_rest(matrix, exact);
    return PassRow{"quantized", "", {{"outliers", exact.empty() ? 0.0 : static_cast<double>(count)}}};
  }

 private:
  // 1 / [H^-1]_jj of each column.
  Result<std::vector<double>> sensitivities(const LinearId& id, ThreadPool& pool) {
    if (!weights_.empty() && weights_of_ == id) return weights_;
    const SecondMoments& moments = factor_.moments();
    const int64_t n = moments.columns();
    std::vector<double> inverse = moments.dense();
    for (int64_t c = 0; c < n; ++c)
      inverse[static_cast<size_t>(c * n + c)] += factor_.damping() * moments.diagonal_mean();
    weights_.assign(static_cast<size_t>(n), 1.0);
    weights_of_ = id;
    if (!invert_symmetric(inverse, n, pool)) return weights_;  // nearly singular: all the same
    for (int64_t c = 0; c < n; ++c) weights_[static_cast<size_t>(c)] = 1 / inverse[static_cast<size_t>(c * n + c)];
    return weights_;
  }

  std::vector<uint8_t> outliers(const PassMatrix& matrix, const std::vector<double>& weights, int64_t count,
                                ThreadPool& pool) const {
    const int64_t group = matrix.format->block_values / find_scale_layout(*matrix.format)->groups;
    std::vector<double> gains(matrix.values.size());
    pool.parallel_for(matrix.rows, [&](int64_t r, int) {
      std::vector<float> row(matrix.values.begin() + r * matrix.cols, matrix.values.begin() + (r + 1) * matrix.cols);
      for (int64_t c = 0; c < matrix.cols; ++c)
        if (matrix.pruned(r, c)) row[static_cast<size_t>(c)] = 0;
      for (int64_t c = 0; c < matrix.cols; c += group)
        GroupGains(row.data() + c, weights.data() + c, group, matrix.format->levels)
            .fill(gains.data() + r * matrix.cols + c);
    });
    std::vector<int32_t> order(gains.size());
    std::iota(order.begin(), order.end(), 0);
    std::nth_element(order.begin(), order.begin() + count, order.end(), [&](int32_t a, int32_t b) {
      const double x = gains[static_cast<size_t>(a)], y = gains[static_cast<size_t>(b)];
      return x != y ? x > y : a < b;
    });
    std::vector<uint8_t> exact(gains.size());
    for (int64_t i = 0; i < count; ++i) exact[static_cast<size_t>(order[static_cast<size_t>(i)])] = 1;
    return exact;
  }

  SpqrOptions options_;
  ColumnFactor factor_;
  std::vector<double> weights_;
  LinearId weights_of_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_spqr_pass(const OptionValues& values) {
  SpqrOptions options;
  MILLRACE_TRY(options.format, level_format(values.text("format")));
  MILLRACE_TRY(options.rounding.search, fit_searches(values.text("fit")));
  options.part = values.number("part");
  options.damp = values.number("damp");
  return std::unique_ptr<Pass>(std::make_unique<Spqr>(options));
}

}  // namespace millrace
