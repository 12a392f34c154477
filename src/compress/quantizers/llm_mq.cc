// LLM-MQ (Li et al., 2023, "LLM-MQ: Mixed-precision Quantization for Efficient LLM Deployment"): matrices get different
// numbers of bits, chosen by an integer program: the sum of their sensitivities is least while all together stay within
// a number of bits a weight.
//
//   minimize  sum over l of S(l, f_l)      subject to  sum over l of bytes(l, f_l) <= bits / 8 * weights
//
// The paper's sensitivity is a first-order estimate of the loss's change, from gradients. There is no backward pass
// here: S is the squared change of a matrix's outputs over their squares, with the norms of its inputs on the
// calibration text. The paper also keeps outliers in 16 bits: `outliers` before this pass does so. Each matrix is then
// rounded with scales of least weighted error (compress/rounding/scale_search.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compress/factories.h"
#include "compress/output/preview.h"
#include "compress/rounding/block_rounding.h"
#include "compress/rounding/column_rounding.h"
#include "compress/rounding/format_knapsack.h"
#include "compress/rounding/level_scales.h"

namespace millrace {
namespace {

class LlmMq final : public Pass {
 public:
  LlmMq(double bits, std::vector<const Format*> formats) : bits_(bits), formats_(std::move(formats)) {}

  uint32_t needs() const override { return kInputNorms; }
  // Of tensors that are not chosen for: the largest.
  std::string format() const override {
    return std::string((*std::ranges::max_element(formats_, {}, &Format::bits_per_value))->name);
  }
  std::vector<const Format*> choices() const override { return formats_; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override { return 2 * rows * cols * 4; }

  double format_cost(const PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (statistics.rows == 0 || !find_scale_layout(*matrix.format)) return 0;
    PassMatrix trial = matrix;
    round_blocks(trial, true, {.columns = statistics.squares}, pool);
    std::vector<double> changes(static_cast<size_t>(matrix.rows)), outputs(changes.size());
    pool.parallel_for(matrix.rows, [&](int64_t r, int) {
      std::vector<float> decoded(static_cast<size_t>(matrix.cols));
      trial.decode_row(r, decoded.data());
      for (int64_t c = 0; c < matrix.cols; ++c) {
        const double value = matrix.values[static_cast<size_t>(r * matrix.cols + c)];
        const double change = value - decoded[static_cast<size_t>(c)],
                     square = statistics.squares[static_cast<size_t>(c)];
        changes[static_cast<size_t>(r)] += square * change * change;
        outputs[static_cast<size_t>(r)] += square * value * value;
      }
    });
    double change = 0, all = 0;
    for (size_t r = 0; r < changes.size(); ++r) change += changes[r], all += outputs[r];
    return all > 0 ? change / all : 0;
  }

  Result<std::vector<size_t>> choose_formats(const std::vector<FormatCosts>& tensors) override {
    int64_t weights = 0, least = 0;
    for (const FormatCosts& one : tensors) {
      weights += one.weights;
      least += std::ranges::min(one.candidates, {}, &FormatCosts::Candidate::bytes).bytes;
    }
    const auto bytes = static_cast<int64_t>(bits_ / 8 * static_cast<double>(weights));
    if (least > bytes)
      return Error::user(fmt::format("pass llm_mq: bits {}: the smallest of the formats take {:.3f} bits a weight",
                                     bits_, 8.0 * static_cast<double>(least) / static_cast<double>(weights)));
    return least_cost_formats(tensors, bytes);
  }
  bool rounds_to_any_format() const override { return true; }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    PassPreview out = preview_levels(matrix);
    if (out.action == "left" || matrix.parts.input.empty()) return out;
    return preview_left("its inputs are changed, and their sizes not measured");
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (const std::string why = why_without_levels(matrix); !why.empty()) return PassRow{"left", why, {}};
    if (!matrix.parts.input.empty()) return PassRow{"left", "its inputs are changed, and their sizes not measured", {}};
    round_blocks(matrix, true, {.columns = statistics.squares}, pool);
    return PassRow{"quantized", "", {{"bits", matrix.format->bits_per_value()}}};
  }

 private:
  double bits_;
  std::vector<const Format*> formats_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_llm_mq_pass(const OptionValues& options) {
  std::vector<const Format*> formats;
  const std::string& names = options.text("formats");
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find('+', begin), names.size());
    MILLRACE_TRY(const Format* format, level_format(names.substr(begin, end - begin)));
    formats.push_back(format);
    begin = end + 1;
  }
  return std::unique_ptr<Pass>(std::make_unique<LlmMq>(options.number("bits"), std::move(formats)));
}

}  // namespace millrace
