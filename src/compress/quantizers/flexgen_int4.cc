// FlexGen's INT4 (Sheng et al., 2023, "FlexGen: High-Throughput Generative Inference of Large Language Models with a
// Single GPU"): 4-bit levels between the smallest and the largest weight of a group of 64 columns,
// w = min + level * (max - min) / 15. Stored as Q4_1, whose blocks of 32 then share scale and minimum in pairs. Inputs
// are not rounded: the paper decompresses before the product. Its 4-bit cache: kv_format members of 4 bits.
#include <fmt/format.h>

#include "compress/factories.h"
#include "compress/output/preview.h"
#include "compress/rounding/group_scales.h"

namespace millrace {
namespace {

class FlexGenInt4 final : public Pass {
 public:
  explicit FlexGenInt4(int64_t group) : group_(group) {}

  uint32_t needs() const override { return kNoStatistics; }
  std::string format() const override { return "q4_1"; }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    if (!can_share_scales(*matrix.format)) return preview_left(fmt::format("its format is {}", matrix.format->name));
    if (!matrix.kept.empty()) return preview_left("it is pruned, and a group's levels may not have zero");
    return PassPreview{"quantized", "", false};
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& /*statistics*/, ThreadPool& pool) override {
    if (!can_share_scales(*matrix.format))
      return PassRow{"left", fmt::format("its format is {}", matrix.format->name), {}};
    if (!matrix.kept.empty()) return PassRow{"left", "it is pruned, and a group's levels may not have zero", {}};
    round_in_groups(matrix, group_, pool);
    return PassRow{"quantized", "", {}};
  }

 private:
  int64_t group_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_flexgen_int4_pass(const OptionValues& options) {
  const int64_t group = options.integer("group");
  if (group % 32 != 0) return Error::user(fmt::format("group {}: must be a multiple of 32 columns", group));
  return std::unique_ptr<Pass>(std::make_unique<FlexGenInt4>(group));
}

}  // namespace millrace
