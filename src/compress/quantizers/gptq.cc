// GPTQ (Frantar et al., 2022, "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers"): the
// columns of a matrix are rounded one after the other, and the columns that are left are moved so that they make up for
// the error so far, as the outputs on the calibration text see it (compress/rounding/column_rounding.h). Levels are
// those of a stored block format, so that the output is an ordinary file. After a pass that changes inputs, such as
// `rotate:format=` or `awq:format=`, the second moments are those of the changed inputs.
#include <fmt/format.h>

#include <numeric>
#include <optional>

#include "compress/factories.h"
#include "compress/matrix_parts.h"
#include "compress/output/preview.h"
#include "compress/rounding/column_rounding.h"

namespace millrace {
namespace {

struct GptqOptions {
  const Format* format = nullptr;
  double damp = 0.01;
  bool permuted = false;  // columns are stored in that order, and inputs are permuted at run time
  RoundingOptions rounding;
};

class Gptq final : public Pass {
 public:
  explicit Gptq(const GptqOptions& options) : options_(options) {}

  uint32_t needs() const override { return kSecondMoments; }
  std::string format() const override { return std::string(options_.format->name); }
  int64_t working_bytes(int64_t /*rows*/, int64_t cols) const override { return ColumnFactor::bytes(cols); }
  bool rounds_to_any_format() const override { return !options_.permuted; }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    PassPreview out = preview_levels(matrix);
    if (out.action != "left" && options_.permuted && matrix.no_parts.empty() && matrix.parts.input.rounding.empty())
      preview_order(matrix);
    return out;
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (const std::string why = why_without_levels(matrix); !why.empty()) return PassRow{"left", why, {}};
    RoundingOptions rounding = options_.rounding;
    const bool ordered = rounding.by_activation || options_.permuted;
    if (!factor_.prepare(matrix, statistics, options_.damp, ordered, pool))
      return PassRow{"left", "its inputs are all zero or not finite", {}};
    std::vector<int32_t> order = factor_.order();
    if (options_.permuted && matrix.no_parts.empty() && matrix.parts.input.rounding.empty()) {
      order_inputs(matrix, order, pool);  // the columns of a block are then those of similar inputs
      std::iota(order.begin(), order.end(), 0);
    } else {
      rounding.by_activation = ordered;
    }
    round_columns(matrix, factor_.factor(), order, rounding, {}, pool);
    return PassRow{"quantized", "", {{"damping", factor_.damping()}}};
  }

 private:
  GptqOptions options_;
  ColumnFactor factor_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_gptq_pass(const OptionValues& values) {
  GptqOptions options;
  MILLRACE_TRY(options.format, level_format(values.text("format")));
  options.damp = values.number("damp");
  const std::string& order = values.text("order");
  if (order != "stored" && order != "activation")
    return Error::user(fmt::format("order '{}': must be stored or activation", order));
  options.permuted = values.boolean("permute");
  options.rounding.by_activation = order == "activation" && !options.permuted;
  if (options.permuted && order != "activation")
    return Error::user("permute: columns are stored in another order only with order=activation");
  options.rounding.clips = static_cast<int>(values.integer("clip"));
  MILLRACE_TRY(options.rounding.search, fit_searches(values.text("fit")));
  if (options.rounding.search && options.rounding.clips > 0)
    return Error::user("clip: belongs to fit=plain; fit=search chooses the scales itself");
  return std::unique_ptr<Pass>(std::make_unique<Gptq>(options));
}

}  // namespace millrace
