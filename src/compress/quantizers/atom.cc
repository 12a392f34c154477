// Atom (Zhao et al., 2023, "Atom: Low-bit Quantization for Efficient and Accurate LLM Serving"): mixed precision. The
// columns with the largest inputs are multiplied in 8 bits, weights and inputs alike; all others in 4 bits, inputs in
// groups with a scale for each token and clipped a little.
//
//   y = Q4(W without the columns) int4(x without the columns) + Q8(the columns) int8(x[columns])
//
// The paper moves the columns to the end of the matrix; here they stand beside it. Its weights are rounded by GPTQ,
// here plainly, and its 4-bit cache is a KV format.
#include <algorithm>
#include <numeric>

#include "compress/factories.h"
#include "compress/output/preview.h"
#include "compress/pass_options.h"
#include "compress/rounding/outlier_columns.h"

namespace millrace {
namespace {

constexpr int64_t kQ8Columns = 32;  // of Q8_0

class Atom final : public Pass {
 public:
  Atom(int64_t outliers, InputFormat inputs, const Format* format)
      : outliers_(outliers), inputs_(inputs), format_(format) {}

  uint32_t needs() const override { return kInputNorms; }
  std::string format() const override { return format_ ? std::string(format_->name) : ""; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override { return rows * std::min(outliers_, cols) * 4; }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    if (std::string why = keeps_its_inputs(matrix); !why.empty()) return preview_left(std::move(why));
    const int64_t outliers = std::min(outliers_, matrix.cols / kQ8Columns * kQ8Columns);
    if (outliers > 0) preview_columns(matrix, outliers, *find_format("q8_0"));
    if (outliers > 0) matrix.parts.input.scale.assign(static_cast<size_t>(matrix.cols), 1);
    matrix.parts.input.rounding = inputs_.rounding(matrix.cols);
    return PassPreview{"quantized", "", false};
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (const std::string why = keeps_its_inputs(matrix); !why.empty()) return PassRow{"left", why, {}};
    std::vector<int32_t> order(static_cast<size_t>(matrix.cols));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
      return statistics.squares[static_cast<size_t>(a)] > statistics.squares[static_cast<size_t>(b)];
    });
    order.resize(static_cast<size_t>(std::min(outliers_, matrix.cols / kQ8Columns * kQ8Columns)));
    std::ranges::sort(order);
    set_outlier_columns(matrix, order, *find_format("q8_0"));
    matrix.parts.input.rounding = inputs_.rounding(matrix.cols);
    return PassRow{"quantized", "", {{"outlier columns", static_cast<double>(order.size())}}};
  }

 private:
  int64_t outliers_;
  InputFormat inputs_;
  const Format* format_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_atom_pass(const OptionValues& options) {
  MILLRACE_TRY(const InputFormat inputs, input_format(options));
  MILLRACE_TRY(const Format* format, stored_format(options));
  const int64_t outliers = options.integer("outliers");
  if (outliers % kQ8Columns != 0) return Error::user("outliers: must be a multiple of 32 columns, the blocks of q8_0");
  return std::unique_ptr<Pass>(std::make_unique<Atom>(outliers, inputs, format));
}

}  // namespace millrace
