// AWQ (Lin et al., 2023, "AWQ: Activation-aware Weight Quantization for LLM Compression and Acceleration"): columns
// whose inputs are large are scaled up before rounding, and their inputs are scaled down, so that they are rounded
// less:
//
//   y = Q(W diag(s)) (x / s)      s = norm of the input ^ alpha
//
// alpha, one number for a matrix, is searched on a grid by the squared output error on the calibration text. Then each
// block's range is clipped by the part that leaves the least error of the block's own outputs. Before rounding, this is
// the same matrix. 1 / s is stored beside the matrix (`input_scale`) rather than folded into the layer before, so that
// every matrix has its own alpha; norms are root mean squares, where the paper has mean magnitudes. The product of all
// s is scaled so that the largest and the smallest are as far from one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compress/factories.h"
#include "compress/matrix_parts.h"
#include "compress/output/preview.h"
#include "compress/rounding/block_rounding.h"
#include "compress/rounding/column_rounding.h"

namespace millrace {
namespace {

struct AwqOptions {
  std::string format;
  int grid = 20;
  int clips = 8;
  bool search = false;
};

// The error of a block's own outputs, e^T H e with the second moments of its inputs.
class BlockError {
 public:
  BlockError(const SecondMoments& moments, const Format& format)
      : moments_(moments),
        format_(format),
        decoded_(static_cast<size_t>(format.block_values)),
        error_(decoded_.size()) {}

  double of(const uint8_t* block, const float* values, int64_t begin) {
    const int64_t n = format_.block_values;
    format_.decode(block, decoded_.data(), n);
    for (size_t i = 0; i < error_.size(); ++i) error_[i] = double{values[i]} - decoded_[i];
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      double rest = 0;
      for (int64_t j = i + 1; j < n; ++j) rest += moments_.at(begin + i, begin + j) * error_[static_cast<size_t>(j)];
      const double e = error_[static_cast<size_t>(i)];
      sum += e * (moments_.at(begin + i, begin + i) * e + 2 * rest);
    }
    return sum;
  }

 private:
  const SecondMoments& moments_;
  const Format& format_;
  std::vector<float> decoded_;
  std::vector<double> error_;
};

class Awq final : public Pass {
 public:
  explicit Awq(AwqOptions options) : options_(std::move(options)) {}

  uint32_t needs() const override { return kSecondMoments; }
  std::string format() const override { return options_.format; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override { return changed_moments_bytes(cols) + rows * 8; }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    PassPreview out = preview_levels(matrix);
    if (out.action == "left") return out;
    if (!matrix.parts.input.empty()) return preview_left("its inputs are changed already");
    if (!matrix.no_parts.empty()) {
      if (options_.format.empty()) return preview_left(std::string(matrix.no_parts));
      return out;
    }
    matrix.parts.input.scale.assign(static_cast<size_t>(matrix.cols), 1);
    return PassPreview{options_.format.empty() ? "scaled" : "quantized", "", true};  // without, if alpha is 0
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (const std::string why = why_without_levels(matrix); !why.empty()) return PassRow{"left", why, {}};
    if (!matrix.parts.input.empty()) return PassRow{"left", "its inputs are changed already", {}};
    const double mean = statistics.moments.diagonal_mean();
    if (!(mean > 0) || !(mean < 1e300)) return PassRow{"left", "its inputs are all zero or not finite", {}};
    double best_alpha = 0;
    if (matrix.no_parts.empty()) {
      double least = error_of(matrix, statistics, {}, pool);
      for (int i = 1; i <= options_.grid; ++i) {
        const double alpha = static_cast<double>(i) / options_.grid;
        const double error = error_of(matrix, statistics, input_scale(statistics, mean, alpha), pool);
        if (!(error < least)) continue;
        least = error;
        best_alpha = alpha;
      }
      if (best_alpha > 0) set_scale(matrix, input_scale(statistics, mean, best_alpha), pool);
    } else if (options_.format.empty()) {
      return PassRow{"left", std::string(matrix.no_parts), {}};
    }
    const std::vector<std::pair<std::string, double>> figures = {{"alpha", best_alpha}};
    if (options_.format.empty()) return PassRow{best_alpha > 0 ? "scaled" : "left", "", figures};
    round(matrix, changed_moments(statistics.moments, matrix.parts.input), pool);
    return PassRow{"quantized", "", figures};
  }

 private:
  // 1 / s.
  static std::vector<float> input_scale(const LinearStatistics& statistics, double mean, double alpha) {
    const int64_t n = statistics.moments.columns();
    std::vector<double> s;
    for (int64_t c = 0; c < n; ++c)
      s.push_back(std::pow(std::max(statistics.moments.at(c, c), 1e-6 * mean), alpha / 2));
    const auto [low, high] = std::ranges::minmax(s);
    const double middle = std::sqrt(low * high);
    std::vector<float> out;
    for (double one : s) out.push_back(static_cast<float>(middle / one));
    return out;
  }

  // The squared output error of plain rounding under an input scale.
  static double error_of(const PassMatrix& matrix, const LinearStatistics& statistics, const std::vector<float>& scale,
                         ThreadPool& pool) {
    const InputChange change{.scale = scale};
    const Format& format = *matrix.format;
    std::vector<double> of_row(static_cast<size_t>(matrix.rows));
    pool.parallel_for(matrix.rows, [&](int64_t r, int) {
      const float* original = matrix.values.data() + r * matrix.cols;
      std::vector<float> row(original, original + matrix.cols), scratch;
      for (int64_t c = 0; c < matrix.cols; ++c)
        if (matrix.pruned(r, c)) row[static_cast<size_t>(c)] = 0;
      store_row(change, row.data(), matrix.cols, scratch);
      std::vector<uint8_t> stored(static_cast<size_t>(format.row_bytes(matrix.cols)));
      format.encode(row.data(), stored.data(), matrix.cols);
      format.decode(stored.data(), row.data(), matrix.cols);
      std::vector<double> error(row.size());
      for (size_t c = 0; c < row.size(); ++c)
        error[c] = double{original[c]} - double{row[c]} * (scale.empty() ? 1.0 : scale[c]);
      of_row[static_cast<size_t>(r)] = statistics.moments.form(error.data());
    });
    double sum = 0;
    for (double one : of_row) sum += one;
    return sum;
  }

  static void set_scale(PassMatrix& matrix, std::vector<float> scale, ThreadPool& pool) {
    matrix.parts.input.scale = std::move(scale);
    pool.parallel_for(matrix.rows, [&](int64_t r, int) {
      std::vector<float> scratch;
      store_row(matrix.parts.input, matrix.values.data() + r * matrix.cols, matrix.cols, scratch);
    });
  }

  // Each block by the candidate of least error: its whole range, clipped ones, and with fit=search the searched one.
  void round(PassMatrix& matrix, const SecondMoments& moments, ThreadPool& pool) const {
    ErrorWeights weights;
    for (int64_t c = 0; c < matrix.cols; ++c) weights.columns.push_back(moments.at(c, c));
    round_blocks(matrix, options_.search, weights, pool);
    pool.parallel_for(matrix.rows, [&](int64_t r, int) { clip_row(matrix, moments, r); });
  }

  void clip_row(PassMatrix& matrix, const SecondMoments& moments, int64_t r) const {
    const Format& format = *matrix.format;
    const auto n = static_cast<size_t>(format.block_values);
    BlockError error(moments, format);
    std::vector<float> values(n), clamped(n);
    std::vector<uint8_t> candidate(static_cast<size_t>(format.block_bytes));
    uint8_t* block = matrix.encoded.data() + r * format.row_bytes(matrix.cols);
    for (int64_t begin = 0; begin < matrix.cols; begin += format.block_values, block += format.block_bytes) {
      for (size_t i = 0; i < n; ++i) {
        const int64_t c = begin + static_cast<int64_t>(i);
        values[i] = matrix.pruned(r, c) ? 0 : matrix.values[static_cast<size_t>(r * matrix.cols + c)];
      }
      const auto [low, high] = std::ranges::minmax(values);
      double least = error.of(block, values.data(), begin);
      for (int k = options_.search ? 0 : 1; k <= options_.clips; ++k) {
        const float part = 1.0f - static_cast<float>(k) / 32.0f;
        for (size_t i = 0; i < n; ++i)
          clamped[i] = std::clamp(values[i], std::min(low, 0.0f) * part, std::max(high, 0.0f) * part);
        format.encode(clamped.data(), candidate.data(), format.block_values);
        if (const double found = error.of(candidate.data(), values.data(), begin); found < least) {
          least = found;
          std::ranges::copy(candidate, block);
        }
      }
    }
  }

  AwqOptions options_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_awq_pass(const OptionValues& values) {
  AwqOptions options;
  options.format = values.text("format");
  if (!options.format.empty()) MILLRACE_TRY_VOID(level_format(options.format));
  options.grid = static_cast<int>(values.integer("grid"));
  options.clips = static_cast<int>(values.integer("clip"));
  MILLRACE_TRY(options.search, fit_searches(values.text("fit")));
  return std::unique_ptr<Pass>(std::make_unique<Awq>(std::move(options)));
}

}  // namespace millrace
