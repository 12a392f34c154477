// FineQuant (Kim et al., 2023, "FineQuant: Unlocking Efficiency with Fine-Grained Weight-Only Quantization for LLMs"):
// each matrix gets a granularity of its own, chosen by its weights alone. One scale for a whole row fails where a few
// weights are much larger than the others, and many scales are paid for where none are. So groups begin as whole rows
// and are halved for as long as that narrows the ranges that scales have to cover:
//
//   range(g) = mean over groups of g columns of their range       halve g while range(g / 2) <= (1 - alpha) range(g)
//
// A range is what the format's scale covers: twice the largest magnitude, or from the smallest weight to the largest
// where there is a minimum. Groups of 128 normal weights have ranges 8 % narrower than groups of 256, of 2048 4 %
// narrower than of 4096; an outlier that is alone in its group leaves the other half a far narrower one. Blocks of 32
// of the stored format share the scale of their group, so that bytes are the same whatever the group; the report's
// "bits" counts each scale once.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compress/factories.h"
#include "compress/output/preview.h"
#include "compress/rounding/group_scales.h"

namespace millrace {
namespace {

constexpr int64_t kSmallestGroup = 32;  // a block of the format

bool groups_have_minimum(const Format& format) { return format.name == "q4_1" || format.name == "q5_1"; }

class FineQuant final : public Pass {
 public:
  FineQuant(const Format* format, double alpha, int64_t least) : format_(format), alpha_(alpha), least_(least) {}

  uint32_t needs() const override { return kNoStatistics; }
  std::string format() const override { return std::string(format_->name); }
  bool rounds_to_any_format() const override { return true; }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    if (std::string why = cannot_group(matrix); !why.empty()) return preview_left(std::move(why));
    return PassPreview{"quantized", "", false};
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& /*statistics*/, ThreadPool& pool) override {
    if (std::string why = cannot_group(matrix); !why.empty()) return PassRow{"left", std::move(why), {}};
    for (int64_t i = 0; i < std::ssize(matrix.kept); ++i)
      if (!matrix.kept[static_cast<size_t>(i)]) matrix.values[static_cast<size_t>(i)] = 0;
    int64_t group = matrix.cols;
    double range = mean_range(matrix, group, pool);
    while (group > least_) {
      const int64_t half = std::max(least_, (group / 2 + kSmallestGroup - 1) / kSmallestGroup * kSmallestGroup);
      const double narrower = mean_range(matrix, half, pool);
      if (!(narrower <= (1 - alpha_) * range)) break;
      group = half;
      range = narrower;
    }
    round_in_groups(matrix, group, pool);
    const Format& format = *matrix.format;
    const double levels = std::ceil(std::log2(format.levels));
    const double scale_bits = 8.0 * static_cast<double>(format.block_bytes) - levels * kSmallestGroup;
    return PassRow{"quantized",
                   "",
                   {{"group", static_cast<double>(group)}, {"bits", levels + scale_bits / static_cast<double>(group)}}};
  }

 private:
  // Why the matrix is left alone; empty: it is not.
  static std::string cannot_group(const PassMatrix& matrix) {
    if (!can_share_scales(*matrix.format)) return fmt::format("its format is {}", matrix.format->name);
    if (!matrix.kept.empty() && groups_have_minimum(*matrix.format))
      return "it is pruned, and a group's levels may not have zero";
    return "";
  }

  static double mean_range(const PassMatrix& matrix, int64_t group, ThreadPool& pool) {
    const bool minimum = groups_have_minimum(*matrix.format);
    std::vector<double> sums(static_cast<size_t>(matrix.rows));
    pool.parallel_for(matrix.rows, [&](int64_t r, int) {
      const float* row = matrix.values.data() + r * matrix.cols;
      for (int64_t first = 0; first < matrix.cols; first += group) {
        const auto [low, high] = std::minmax_element(row + first, row + std::min(first + group, matrix.cols));
        sums[static_cast<size_t>(r)] +=
            minimum ? double{*high} - *low : 2 * std::max(std::fabs(double{*low}), std::fabs(double{*high}));
      }
    });
    double sum = 0;
    for (double own : sums) sum += own;
    return sum / static_cast<double>(matrix.rows * ((matrix.cols + group - 1) / group));
  }

  const Format* format_;
  double alpha_;
  int64_t least_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_finequant_pass(const OptionValues& options) {
  const std::string& name = options.text("format");
  const Format* format = find_format(name);
  if (!format || !can_share_scales(*format))
    return Error::user(fmt::format("format '{}': must be one of q8_0, q4_0, q4_1, q5_0 and q5_1", name));
  const int64_t least = options.integer("group");
  if (least % kSmallestGroup != 0)
    return Error::user(fmt::format("group {}: must be a multiple of 32 columns, the blocks of {}", least, name));
  return std::unique_ptr<Pass>(std::make_unique<FineQuant>(format, options.number("alpha"), least));
}

}  // namespace millrace
