// LLM.int8() (Dettmers et al., 2022, "LLM.int8(): 8-bit Matrix Multiplication for Transformers at Scale"): columns
// whose inputs reach `threshold` are multiplied in 16 bits, all others in 8: vector-wise, with one scale for each row
// of the matrix and one for each token.
//
//   y = Q(W without the columns) int8(x without the columns) + F16(the columns) x[columns]
//
// The paper looks for outliers in every batch; here they are the inputs that reached the threshold on the calibration
// text, so that a token's result does not depend on its batch.
#include <fmt/format.h>

#include "compress/factories.h"
#include "compress/output/preview.h"
#include "compress/pass_options.h"
#include "compress/rounding/group_scales.h"
#include "compress/rounding/outlier_columns.h"

namespace millrace {
namespace {

class LlmInt8 final : public Pass {
 public:
  LlmInt8(double threshold, bool by_row, InputFormat inputs)
      : threshold_(threshold), by_row_(by_row), inputs_(inputs) {}

  uint32_t needs() const override { return kInputRanges; }
  std::string format() const override { return "q8_0"; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override { return rows * cols * 4; }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    if (std::string why = keeps_its_inputs(matrix); !why.empty()) return preview_left(std::move(why));
    matrix.parts.input.rounding = inputs_.rounding(matrix.cols);
    return PassPreview{"quantized", "", true};  // outlier columns come to it
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (const std::string why = keeps_its_inputs(matrix); !why.empty()) return PassRow{"left", why, {}};
    std::vector<int32_t> outliers;
    for (int64_t c = 0; c < matrix.cols; ++c)
      if (statistics.largest(static_cast<size_t>(c)) >= threshold_) outliers.push_back(static_cast<int32_t>(c));
    set_outlier_columns(matrix, outliers, *find_format("f16"));
    matrix.parts.input.rounding = inputs_.rounding(matrix.cols);
    if (by_row_ && can_share_scales(*matrix.format)) round_in_groups(matrix, 0, pool);
    return PassRow{"quantized", "", {{"outlier columns", static_cast<double>(outliers.size())}}};
  }

 private:
  double threshold_;
  bool by_row_;
  InputFormat inputs_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_llm_int8_pass(const OptionValues& options) {
  MILLRACE_TRY(const InputFormat inputs, input_format(options));
  const std::string& scales = options.text("scales");
  if (scales != "row" && scales != "block")
    return Error::user(fmt::format("scales '{}': must be row or block", scales));
  return std::unique_ptr<Pass>(std::make_unique<LlmInt8>(options.number("threshold"), scales == "row", inputs));
}

}  // namespace millrace
