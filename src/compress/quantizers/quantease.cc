// QuantEase (Behdin et al., 2023, "QuantEase: Optimization-based Quantization for Language Models"): the squared output
// error of a layer is brought down by cyclic coordinate descent: each weight in turn takes the level that is best while
// all others stay, over and over. The closed form of one step is q(beta), beta = w^ + (H (w - w^))_j / H_jj.
//
// The paper starts from the unrounded weights, and leaves every third sweep unrounded. Here the descent starts from
// GPTQ's solution or plain rounding, with the scales chosen there, and every sweep is rounded: so the error is never
// above that of the start on the same grid.
#include <fmt/format.h>

#include "compress/factories.h"
#include "compress/output/preview.h"
#include "compress/rounding/block_rounding.h"
#include "compress/rounding/column_rounding.h"
#include "compress/rounding/coordinate_descent.h"

namespace millrace {
namespace {

struct QuantEaseOptions {
  const Format* format = nullptr;
  int iterations = 0;
  bool from_gptq = true;
  double damp = 0.01;
  RoundingOptions rounding;
};

class QuantEase final : public Pass {
 public:
  explicit QuantEase(const QuantEaseOptions& options) : options_(options) {}

  uint32_t needs() const override { return kSecondMoments; }
  std::string format() const override { return std::string(options_.format->name); }
  int64_t working_bytes(int64_t /*rows*/, int64_t cols) const override {
    return ColumnFactor::bytes(cols) + descent_bytes(cols);
  }
  bool rounds_to_any_format() const override { return true; }
  Result<PassPreview> preview(PassMatrix& matrix) const override { return preview_levels(matrix); }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (const std::string why = why_without_levels(matrix); !why.empty()) return PassRow{"left", why, {}};
    if (!factor_.prepare(matrix, statistics, options_.damp, false, pool))
      return PassRow{"left", "its inputs are all zero or not finite", {}};
    if (options_.from_gptq)
      round_columns(matrix, factor_.factor(), factor_.order(), options_.rounding, {}, pool);
    else
      round_blocks(matrix, options_.rounding.search, diagonal(), pool);
    const DescentResult done = descend(matrix, factor_.moments(), options_.iterations, pool);
    return PassRow{"quantized",
                   "",
                   {{"changes", static_cast<double>(done.changed)}, {"sweeps", static_cast<double>(done.sweeps)}}};
  }

 private:
  ErrorWeights diagonal() const {
    ErrorWeights out;
    for (int64_t c = 0; c < factor_.moments().columns(); ++c) out.columns.push_back(factor_.moments().at(c, c));
    return out;
  }

  QuantEaseOptions options_;
  ColumnFactor factor_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_quantease_pass(const OptionValues& values) {
  QuantEaseOptions options;
  MILLRACE_TRY(options.format, level_format(values.text("format")));
  MILLRACE_TRY(options.rounding.search, fit_searches(values.text("fit")));
  options.iterations = static_cast<int>(values.integer("iterations"));
  options.damp = values.number("damp");
  const std::string& start = values.text("start");
  if (start != "gptq" && start != "rounded")
    return Error::user(fmt::format("start '{}': must be gptq or rounded", start));
  options.from_gptq = start == "gptq";
  return std::unique_ptr<Pass>(std::make_unique<QuantEase>(options));
}

}  // namespace millrace
