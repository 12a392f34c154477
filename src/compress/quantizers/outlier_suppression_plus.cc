// Outlier Suppression+ (Wei et al., 2023, "Outlier Suppression+: Accurate Quantization of Large Language Models by
// Equivalent and Effective Shifting and Scaling"): each input is moved to the middle of its range and divided by a
// scale, both of which the weights make up for:
//
//   y = (W s) ((x - z) / s) + W z        z_j = (max x_j + min x_j) / 2        s_j = max(1, (max x_j - z_j) / t)
//
// The threshold t, beyond which a channel is an outlier, is the one of `steps` fractions of the widest channel whose
// rounded outputs are nearest to the original ones on sampled rows of the calibration text. So it is decided whether to
// shift at all: scales are those of each token here, and a token whose inputs are not spread over the whole range of
// the calibration has a larger range when shifted.
#include <algorithm>
#include <cmath>

#include "compress/calibration/sample_error.h"
#include "compress/factories.h"
#include "compress/output/preview.h"
#include "compress/pass_options.h"

namespace millrace {
namespace {

class OutlierSuppressionPlus final : public Pass {
 public:
  OutlierSuppressionPlus(int64_t steps, InputFormat inputs, const Format* format)
      : steps_(steps), inputs_(inputs), format_(format) {}

  uint32_t needs() const override { return kInputRanges | kInputSamples; }
  std::string format() const override { return format_ ? std::string(format_->name) : ""; }
  int64_t working_bytes(int64_t /*rows*/, int64_t cols) const override { return SampleError::bytes(cols); }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    if (std::string why = keeps_its_inputs(matrix); !why.empty()) return preview_left(std::move(why));
    matrix.parts.input.rounding = inputs_.rounding(matrix.cols);
    matrix.parts.input.scale.assign(static_cast<size_t>(matrix.cols), 1);
    matrix.parts.input.shift = matrix.parts.input.scale;
    matrix.parts.bias.assign(static_cast<size_t>(matrix.rows), 0);
    return PassPreview{"shifted", "", true};  // or scaled only
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (const std::string why = keeps_its_inputs(matrix); !why.empty()) return PassRow{"left", why, {}};
    const SampleError error(matrix, statistics);
    double best = INFINITY;
    InputChange chosen;
    for (const bool shifted : {true, false}) {
      std::vector<float> half;  // of each channel's range
      InputChange change;
      for (int64_t c = 0; c < matrix.cols; ++c) {
        const auto at = static_cast<size_t>(c);
        if (shifted) change.shift.push_back((statistics.most[at] + statistics.least[at]) / 2);
        half.push_back(shifted ? statistics.most[at] - change.shift[at] : statistics.largest(at));
      }
      change.rounding = inputs_.rounding(matrix.cols);
      const float widest = *std::ranges::max_element(half);
      if (!(widest > 0) || !std::isfinite(widest)) return PassRow{"left", "its inputs are constant or not finite", {}};
      for (int64_t k = steps_; k >= 1; --k) {  // of equally good ones the largest
        set_scales(half, static_cast<float>(k) / static_cast<float>(steps_) * widest, change);
        const double found = error.of(change, pool);
        if (found >= best) continue;
        best = found;
        chosen = change;
      }
    }
    if (chosen.empty()) return PassRow{"left", "its inputs are not finite", {}};
    if (!chosen.shift.empty()) set_bias(matrix, chosen.shift);
    matrix.parts.input = chosen;
    store_rows(matrix, pool);
    return PassRow{chosen.shift.empty() ? "scaled" : "shifted", "", {}};
  }

 private:
  static void set_scales(const std::vector<float>& half, float threshold, InputChange& change) {
    change.scale.clear();
    for (float own : half) change.scale.push_back(1 / std::max(1.0f, own / threshold));
  }

  static void set_bias(PassMatrix& matrix, const std::vector<float>& shift) {
    for (int64_t r = 0; r < matrix.rows; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < matrix.cols; ++c)
        sum += double{matrix.values[static_cast<size_t>(r * matrix.cols + c)]} * shift[static_cast<size_t>(c)];
      matrix.parts.bias.push_back(static_cast<float>(sum));
    }
  }

  int64_t steps_;
  InputFormat inputs_;
  const Format* format_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_outlier_suppression_plus_pass(const OptionValues& options) {
  MILLRACE_TRY(const InputFormat inputs, input_format(options));
  MILLRACE_TRY(const Format* format, stored_format(options));
  return std::unique_ptr<Pass>(std::make_unique<OutlierSuppressionPlus>(options.integer("steps"), inputs, format));
}

}  // namespace millrace
