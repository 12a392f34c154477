// ZeroQuant-FP (Wu et al., 2023, "ZeroQuant-FP: A Leap Forward in LLMs Post-Training W4A8 Quantization Using
// Floating-Point Formats"): weights in FP4 (E2M1) under scales that are powers of two, which makes their conversion to
// FP8 exact, and token-wise FP8 (E4M3) inputs; a low-rank pair of the rounding error (LoRC) beside each matrix. Stored
// as MXFP4, whose scale stands for 32 columns; the paper's groups have 256.
#include <algorithm>

#include "compress/factories.h"
#include "compress/output/preview.h"
#include "compress/pass_options.h"
#include "compress/rounding/low_rank_error.h"

namespace millrace {
namespace {

class ZeroQuantFp final : public Pass {
 public:
  ZeroQuantFp(int64_t rank, InputFormat inputs) : rank_(rank), inputs_(inputs) {}

  uint32_t needs() const override { return kNoStatistics; }
  std::string format() const override { return "mxfp4"; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override { return low_rank_bytes(rows, cols, rank_); }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    if (std::string why = keeps_its_inputs(matrix); !why.empty()) return preview_left(std::move(why));
    matrix.parts.input.rounding = inputs_.rounding(matrix.cols);
    if (rank_ > 0) preview_pair(matrix, std::min({rank_, matrix.rows, matrix.cols}), nullptr);
    return PassPreview{"quantized", "", false};
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& /*statistics*/, ThreadPool& pool) override {
    if (const std::string why = keeps_its_inputs(matrix); !why.empty()) return PassRow{"left", why, {}};
    matrix.parts.input.rounding = inputs_.rounding(matrix.cols);
    const int64_t rank = std::min({rank_, matrix.rows, matrix.cols});
    if (rank == 0) return PassRow{"quantized", "", {}};
    round_plainly(matrix, pool);
    LinearStatistics alike;  // all inputs of the same size
    alike.squares.assign(static_cast<size_t>(matrix.cols), 1.0);
    add_low_rank_pair(matrix, rounding_error(matrix, pool), rank, alike, false, pool);
    return PassRow{"quantized", "", {{"rank", static_cast<double>(rank)}}};
  }

 private:
  int64_t rank_;
  InputFormat inputs_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_zeroquant_fp_pass(const OptionValues& options) {
  MILLRACE_TRY(const InputFormat inputs, input_format(options));
  return std::unique_ptr<Pass>(std::make_unique<ZeroQuantFp>(options.integer("rank"), inputs));
}

}  // namespace millrace
