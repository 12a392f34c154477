// SmoothQuant (Xiao et al., 2022, "SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language
// Models"): a part of the inputs' outliers moves into the weights, which are easier to round: y = (W s) (x / s) with
// s_j = max|x_j|^alpha / max|w_j|^(1 - alpha). Then both are rounded. The paper folds 1 / s into the norm before the
// matrix, so that Q, K and V share it; here each matrix has its own, which stands beside it as input scale.
#include <algorithm>
#include <cmath>

#include "compress/factories.h"
#include "compress/output/preview.h"
#include "compress/pass_options.h"

namespace millrace {
namespace {

class SmoothQuant final : public Pass {
 public:
  SmoothQuant(double alpha, InputFormat inputs, const Format* format)
      : alpha_(alpha), inputs_(inputs), format_(format) {}

  uint32_t needs() const override { return kInputRanges; }
  std::string format() const override { return format_ ? std::string(format_->name) : ""; }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    if (std::string why = keeps_its_inputs(matrix); !why.empty()) return preview_left(std::move(why));
    matrix.parts.input.rounding = inputs_.rounding(matrix.cols);
    matrix.parts.input.scale.assign(static_cast<size_t>(matrix.cols), 1);
    return PassPreview{"smoothed", "", false};
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (const std::string why = keeps_its_inputs(matrix); !why.empty()) return PassRow{"left", why, {}};
    InputChange& change = matrix.parts.input;
    change.rounding = inputs_.rounding(matrix.cols);
    double most = 0;
    for (int64_t c = 0; c < matrix.cols; ++c) {
      const double s = smoothing(statistics.largest(static_cast<size_t>(c)), largest_weight(matrix, c));
      change.scale.push_back(static_cast<float>(1 / s));
      most = std::max(most, s);
    }
    store_rows(matrix, pool);
    return PassRow{"smoothed", "", {{"largest s", most}}};
  }

 private:
  static double largest_weight(const PassMatrix& matrix, int64_t col) {
    float most = 0;
    for (int64_t r = 0; r < matrix.rows; ++r)
      most = std::max(most, std::fabs(matrix.values[static_cast<size_t>(r * matrix.cols + col)]));
    return most;
  }

  double smoothing(double input, double weight) const {
    if (!(input > 0) || !(weight > 0)) return 1;
    return std::clamp(std::pow(input, alpha_) / std::pow(weight, 1 - alpha_), 1e-5, 1e5);
  }

  double alpha_;
  InputFormat inputs_;
  const Format* format_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_smoothquant_pass(const OptionValues& options) {
  MILLRACE_TRY(const InputFormat inputs, input_format(options));
  MILLRACE_TRY(const Format* format, stored_format(options));
  return std::unique_ptr<Pass>(std::make_unique<SmoothQuant>(options.number("alpha"), inputs, format));
}

}  // namespace millrace
