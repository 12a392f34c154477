// Rounded inputs: the rows that a matrix multiplies are rounded to fewer bits while the model runs, with one scale for
// each token or for groups of columns. As the last pass it makes W4A4 or W8A8 of any quantizer before it; with `format`
// it is plain rounding of both, the baseline of the quantizers of weights and activations. Token-wise scales are those
// of ZeroQuant (Yao et al., 2022, "ZeroQuant: Efficient and Affordable Post-Training Quantization for Large-Scale
// Transformers").
#include "compress/factories.h"
#include "compress/output/preview.h"
#include "compress/pass_options.h"

namespace millrace {
namespace {

class RoundInputs final : public Pass {
 public:
  RoundInputs(InputFormat inputs, const Format* format) : inputs_(inputs), format_(format) {}

  uint32_t needs() const override { return kNoStatistics; }
  std::string format() const override { return format_ ? std::string(format_->name) : ""; }
  bool corrects() const override { return true; }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    if (!matrix.no_parts.empty()) return preview_left(std::string(matrix.no_parts));
    if (matrix.id.layer < 0) return preview_left("the head's inputs stay as they are");
    if (!matrix.parts.input.rounding.empty()) return preview_left("its inputs are rounded already");
    matrix.parts.input.rounding = inputs_.rounding(matrix.cols);
    return PassPreview{"rounded", "", false};
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& /*statistics*/, ThreadPool& /*pool*/) override {
    if (!matrix.no_parts.empty()) return PassRow{"left", std::string(matrix.no_parts), {}};
    if (matrix.id.layer < 0) return PassRow{"left", "the head's inputs stay as they are", {}};
    if (!matrix.parts.input.rounding.empty()) return PassRow{"left", "its inputs are rounded already", {}};
    matrix.parts.input.rounding = inputs_.rounding(matrix.cols);
    return PassRow{"rounded", "", {}};
  }

 private:
  InputFormat inputs_;
  const Format* format_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_round_inputs_pass(const OptionValues& options) {
  MILLRACE_TRY(const InputFormat inputs, input_format(options));
  if (!inputs.rounds()) return Error::user("inputs 'none': there is nothing to round");
  MILLRACE_TRY(const Format* format, stored_format(options));
  return std::unique_ptr<Pass>(std::make_unique<RoundInputs>(inputs, format));
}

}  // namespace millrace
