// Round to nearest (Nagel et al., 2021, "A White Paper on Neural Network Quantization"), the baseline of every
// quantizer, as a pass: each weight takes the nearest level of its block. With fit=search the block's scales are those
// of least squared error, the paper's MSE range setting (compress/rounding/scale_search.h); plain covers the range of
// the block. The bytes are the same.
#include <fmt/format.h>

#include "compress/factories.h"
#include "compress/matrix_parts.h"
#include "compress/output/preview.h"
#include "compress/rounding/block_rounding.h"
#include "compress/rounding/column_rounding.h"

namespace millrace {
namespace {

enum class CountedBy : uint8_t { equal, values, inputs };

class RoundToNearest final : public Pass {
 public:
  RoundToNearest(const Format* format, bool search, CountedBy counted)
      : format_(format), search_(search), counted_(counted) {}

  uint32_t needs() const override { return counted_ == CountedBy::inputs ? kInputNorms : kNoStatistics; }
  std::string format() const override { return std::string(format_->name); }
  bool rounds_to_any_format() const override { return true; }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    PassPreview out = preview_levels(matrix);
    if (out.action == "left" || counted_ != CountedBy::inputs || matrix.parts.input.empty()) return out;
    return preview_left("its inputs are changed, and their sizes not measured");
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (const std::string why = why_without_levels(matrix); !why.empty()) return PassRow{"left", why, {}};
    ErrorWeights weights{.columns = {}, .by_value = counted_ == CountedBy::values};
    if (counted_ == CountedBy::inputs) {
      if (!matrix.parts.input.empty())
        return PassRow{"left", "its inputs are changed, and their sizes not measured", {}};
      weights.columns = statistics.squares;
    }
    round_blocks(matrix, search_, weights, pool);
    return PassRow{"quantized", "", {}};
  }

 private:
  const Format* format_;
  bool search_;
  CountedBy counted_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_rtn_pass(const OptionValues& options) {
  MILLRACE_TRY(const Format* format, level_format(options.text("format")));
  MILLRACE_TRY(const bool search, fit_searches(options.text("fit")));
  const std::string& count = options.text("count");
  if (count != "equal" && count != "values" && count != "inputs")
    return Error::user(fmt::format("count '{}': must be equal, values or inputs", count));
  if (!search && count != "equal") return Error::user("count: only fit=search weighs errors");
  const CountedBy counted = count == "equal"    ? CountedBy::equal
                            : count == "values" ? CountedBy::values
                                                : CountedBy::inputs;
  return std::unique_ptr<Pass>(std::make_unique<RoundToNearest>(format, search, counted));
}

}  // namespace millrace
