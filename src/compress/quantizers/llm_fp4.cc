// LLM-FP4 (Liu et al., 2023, "LLM-FP4: 4-Bit Floating-Point Quantized Transformers"): weights and inputs in 4-bit
// floats. Channels of inputs differ much more from each other than tokens do, so each gets an exponent bias of its own,
// which is moved into the weights beforehand ("pre-shifted"): y = (W 2^-b) (2^b x), with
// b_j = floor(log2(largest of all / max|x_j|)), at most `shift`. How the four bits are divided into exponent and
// mantissa, the clip that the tensor's own bias amounts to, and the largest shift are searched: those whose rounded
// outputs are nearest to the original ones on sampled rows of the calibration text. Weights are MXFP4 (E2M1), whose
// scale of 32 columns is the exponent bias.
#include <algorithm>
#include <cmath>

#include "compress/calibration/sample_error.h"
#include "compress/factories.h"
#include "compress/output/preview.h"
#include "compress/pass_options.h"

namespace millrace {
namespace {

struct BitDivision {
  int32_t exponent_bits, mantissa_bits;
};
constexpr BitDivision kBitDivisions[] = {{2, 1}, {1, 2}, {3, 0}};
constexpr float kInputClips[] = {1.0f, 0.9f, 0.8f};

class LlmFp4 final : public Pass {
 public:
  explicit LlmFp4(int64_t shift) : shift_(shift) {}

  uint32_t needs() const override { return kInputRanges | kInputSamples; }
  std::string format() const override { return "mxfp4"; }
  int64_t working_bytes(int64_t /*rows*/, int64_t cols) const override { return SampleError::bytes(cols); }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    if (std::string why = keeps_its_inputs(matrix); !why.empty()) return preview_left(std::move(why));
    matrix.parts.input.scale.assign(static_cast<size_t>(matrix.cols), 1);
    matrix.parts.input.rounding.resize(1);
    return PassPreview{"quantized", "", false};
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (const std::string why = keeps_its_inputs(matrix); !why.empty()) return PassRow{"left", why, {}};
    const SampleError error(matrix, statistics);
    double best = INFINITY;
    for (int64_t shift = 0; shift <= shift_; ++shift) {
      InputChange change;
      change.scale = shifts(statistics, matrix.cols, shift);
      for (const BitDivision& bits : kBitDivisions)
        for (float clip : kInputClips) {
          const auto columns = static_cast<int32_t>(matrix.cols);
          change.rounding = {{columns, bits.exponent_bits, bits.mantissa_bits, columns, clip}};
          const double found = error.of(change, pool);
          if (found >= best) continue;
          best = found;
          matrix.parts.input = change;
        }
    }
    if (matrix.parts.input.empty()) return PassRow{"left", "its inputs are not finite", {}};
    store_rows(matrix, pool);
    const InputSegment& chosen = matrix.parts.input.rounding.front();
    return PassRow{"quantized",
                   "",
                   {{"exponent bits", static_cast<double>(chosen.exponent_bits)},
                    {"clip", chosen.clip},
                    {"largest shift", std::log2(std::ranges::max(matrix.parts.input.scale))}}};
  }

 private:
  static std::vector<float> shifts(const LinearStatistics& statistics, int64_t cols, int64_t limit) {
    float most = 0;
    for (int64_t c = 0; c < cols; ++c) most = std::max(most, statistics.largest(static_cast<size_t>(c)));
    std::vector<float> out;
    for (int64_t c = 0; c < cols; ++c) {
      const float own = statistics.largest(static_cast<size_t>(c));
      const float b = own > 0 ? std::floor(std::log2(most / own)) : 0;
      out.push_back(std::ldexp(1.0f, static_cast<int>(std::clamp(b, 0.0f, static_cast<float>(limit)))));
    }
    return out;
  }

  int64_t shift_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_llm_fp4_pass(const OptionValues& options) {
  return std::unique_ptr<Pass>(std::make_unique<LlmFp4>(options.integer("shift")));
}

}  // namespace millrace
