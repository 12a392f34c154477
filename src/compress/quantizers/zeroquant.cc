// ZeroQuant (Yao et al., 2022, "ZeroQuant: Efficient and Affordable Post-Training Quantization for Large-Scale
// Transformers"): group-wise weights and token-wise int8 inputs, without any calibration. The paper's layer-by-layer
// distillation is no part of it here.
#include <fmt/format.h>

#include "compress/factories.h"
#include "compress/output/preview.h"
#include "compress/pass_options.h"
#include "compress/rounding/group_scales.h"
#include "compress/rounding/low_rank_error.h"

namespace millrace {
namespace {

// rank 0: ZeroQuant. With a low-rank pair: ZeroQuant-V2's LoRC (Yao et al., 2023, "ZeroQuant-V2: Exploring
// Post-training Quantization in LLMs from Comprehensive Study to Low Rank Compensation"), which takes the largest
// singular vectors of the rounding error E = W - Q(W), whatever the inputs are.
class ZeroQuant final : public Pass {
 public:
  ZeroQuant(int64_t group, int64_t rank, InputFormat inputs, const Format* format)
      : group_(group), rank_(rank), inputs_(inputs), format_(format) {}

  uint32_t needs() const override { return kNoStatistics; }
  std::string format() const override { return std::string(format_->name); }
  int64_t working_bytes(int64_t rows, int64_t cols) const override {
    return rank_ > 0 ? low_rank_bytes(rows, cols, rank_) : 0;
  }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    if (std::string why = keeps_its_inputs(matrix); !why.empty()) return preview_left(std::move(why));
    if (!can_share_scales(*matrix.format)) return preview_left(fmt::format("its format is {}", matrix.format->name));
    matrix.parts.input.rounding = inputs_.rounding(matrix.cols);
    if (rank_ > 0) preview_pair(matrix, std::min({rank_, matrix.rows, matrix.cols}), nullptr);
    return PassPreview{"quantized", "", false};
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& /*statistics*/, ThreadPool& pool) override {
    if (const std::string why = keeps_its_inputs(matrix); !why.empty()) return PassRow{"left", why, {}};
    if (!can_share_scales(*matrix.format))
      return PassRow{"left", fmt::format("its format is {}", matrix.format->name), {}};
    round_in_groups(matrix, group_, pool);
    matrix.parts.input.rounding = inputs_.rounding(matrix.cols);
    if (rank_ == 0) return PassRow{"quantized", "", {}};
    LinearStatistics alike;  // all inputs of the same size
    alike.squares.assign(static_cast<size_t>(matrix.cols), 1.0);
    const int64_t rank = std::min({rank_, matrix.rows, matrix.cols});
    add_low_rank_pair(matrix, rounding_error(matrix, pool), rank, alike, false, pool);
    return PassRow{"quantized", "", {{"rank", static_cast<double>(rank)}}};
  }

 private:
  int64_t group_, rank_;
  InputFormat inputs_;
  const Format* format_;
};

Result<std::unique_ptr<Pass>> zeroquant_of(const OptionValues& options, int64_t rank) {
  MILLRACE_TRY(const InputFormat inputs, input_format(options));
  MILLRACE_TRY(const Format* format, stored_format(options));
  const int64_t group = options.integer("group");
  if (!format || !can_share_scales(*format))
    return Error::user(
        fmt::format("format '{}': must be one of q8_0, q4_0, q4_1, q5_0 and q5_1", options.text("format")));
  if (group % 32 != 0) return Error::user(fmt::format("group {}: must be a multiple of 32 columns", group));
  return std::unique_ptr<Pass>(std::make_unique<ZeroQuant>(group, rank, inputs, format));
}

}  // namespace

Result<std::unique_ptr<Pass>> make_zeroquant_pass(const OptionValues& options) { return zeroquant_of(options, 0); }
Result<std::unique_ptr<Pass>> make_zeroquant_lorc_pass(const OptionValues& options) {
  return zeroquant_of(options, options.integer("rank"));
}

}  // namespace millrace
