// OWQ (Lee et al., 2023, "OWQ: Outlier-Aware Weight Quantization for Efficient Fine-Tuning and Inference of Large
// Language Models"): a few weak columns, whose rounding would cost most, stay in 16 bits, and GPTQ rounds the others
// without them. A column's sensitivity is lambda_j |dW_:,j|^2, with the second moment lambda_j of its input and the
// error dW_:,j of plain rounding.
//
// Weak columns are zero in the rounded matrix, so that blocks' scales need not cover them, and stand beside it as F16.
// They are not rounded, but take the values that make up for the errors of the columns before them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compress/factories.h"
#include "compress/output/preview.h"
#include "compress/rounding/column_rounding.h"
#include "tensor/half.h"

namespace millrace {
namespace {

struct OwqOptions {
  const Format* format = nullptr;
  double part = 0;
  double damp = 0.01;
  RoundingOptions rounding;
};

class Owq final : public Pass {
 public:
  explicit Owq(const OwqOptions& options) : options_(options) {}

  uint32_t needs() const override { return kSecondMoments; }
  std::string format() const override { return std::string(options_.format->name); }
  int64_t working_bytes(int64_t rows, int64_t cols) const override {
    return ColumnFactor::bytes(cols) + SecondMoments::bytes(cols) + rows * cols + weak_count(cols) * rows * 4;
  }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    PassPreview out = preview_levels(matrix);
    if (out.action == "left") return out;
    if (!matrix.parts.input.empty()) return preview_left("its inputs are changed already");
    if (!matrix.parts.columns.empty()) return preview_left("it has separate columns already");
    if (matrix.no_parts.empty()) preview_columns(matrix, weak_count(matrix.cols), *find_format("f16"));
    return out;
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (const std::string why = why_without_levels(matrix); !why.empty()) return PassRow{"left", why, {}};
    if (!matrix.parts.input.empty()) return PassRow{"left", "its inputs are changed already", {}};
    if (!matrix.parts.columns.empty()) return PassRow{"left", "it has separate columns already", {}};
    const bool has_weak = matrix.no_parts.empty();
    const std::vector<int32_t> weak = has_weak ? weak_columns(matrix, statistics, pool) : std::vector<int32_t>();
    std::vector<uint8_t> exact(weak.empty() ? 0 : matrix.values.size());
    for (int64_t r = 0; r < matrix.rows; ++r)
      for (int32_t c : weak) exact[static_cast<size_t>(r * matrix.cols + c)] = 1;
    if (!factor_.prepare(matrix, statistics, options_.damp, false, pool))
      return PassRow{"left", "its inputs are all zero or not finite", {}};
    round_columns(matrix, factor_.factor(), factor_.order(), options_.rounding, exact, pool);
    if (!weak.empty()) keep_columns(matrix, weak);
    return PassRow{"quantized", "", {{"weak columns", static_cast<double>(weak.size())}}};
  }

 private:
  int64_t weak_count(int64_t cols) const {
    return std::clamp<int64_t>(std::llround(options_.part * static_cast<double>(cols)), 1, cols);
  }

  // The most sensitive ones, ascending; of equal ones the first.
  std::vector<int32_t> weak_columns(const PassMatrix& matrix, const LinearStatistics& statistics,
                                    ThreadPool& pool) const {
    std::vector<float> rounded(matrix.values.size());
    const Format& format = *matrix.format;
    pool.parallel_for(matrix.rows, [&](int64_t r, int) {
      std::vector<uint8_t> stored(static_cast<size_t>(format.row_bytes(matrix.cols)));
      format.encode(matrix.values.data() + r * matrix.cols, stored.data(), matrix.cols);
      format.decode(stored.data(), rounded.data() + r * matrix.cols, matrix.cols);
    });
    std::vector<double> sensitivity(static_cast<size_t>(matrix.cols));
    for (size_t i = 0; i < rounded.size(); ++i) {
      const double error = double{matrix.values[i]} - rounded[i];
      sensitivity[i % sensitivity.size()] += error * error;
    }
    for (size_t c = 0; c < sensitivity.size(); ++c)
      sensitivity[c] *= statistics.moments.at(static_cast<int64_t>(c), static_cast<int64_t>(c));
    std::vector<int32_t> order(sensitivity.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, [&](int32_t a, int32_t b) {
      const double x = sensitivity[static_cast<size_t>(a)], y = sensitivity[static_cast<size_t>(b)];
      return x != y ? x > y : a < b;
    });
    order.resize(static_cast<size_t>(weak_count(matrix.cols)));
    std::ranges::sort(order);
    return order;
  }

  // Beside the matrix stands what the rounded columns lack.
  static void keep_columns(PassMatrix& matrix, const std::vector<int32_t>& weak) {
    PassParts& parts = matrix.parts;
    parts.columns = weak;
    parts.column_format = find_format("f16");
    std::vector<float> decoded(static_cast<size_t>(matrix.cols));
    for (int64_t r = 0; r < matrix.rows; ++r) {
      matrix.decode_row(r, decoded.data());
      for (int32_t c : weak) {
        const float value = matrix.pruned(r, c) ? 0 : matrix.values[static_cast<size_t>(r * matrix.cols + c)];
        const float lacking = std::clamp(value - decoded[static_cast<size_t>(c)], -65504.0f, 65504.0f);
        parts.column_weights.push_back(f16_to_f32(f32_to_f16(lacking)));
      }
    }
  }

  OwqOptions options_;
  ColumnFactor factor_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_owq_pass(const OptionValues& values) {
  OwqOptions options;
  MILLRACE_TRY(options.format, level_format(values.text("format")));
  MILLRACE_TRY(options.rounding.search, fit_searches(values.text("fit")));
  options.part = values.number("part");
  options.damp = values.number("damp");
  return std::unique_ptr<Pass>(std::make_unique<Owq>(options));
}

}  // namespace millrace
