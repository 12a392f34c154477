// H2O (Zhang et al., 2023): a query sees the newest blocks and the blocks that received most attention from earlier
// queries, the heavy hitters, by the sums of block_sums.h. The paper drops all other tokens; the evictor h2o does that.
// Here their keys stay stored, so that layers choose for themselves, a prompt can see all of them (phase=decode), and a
// file of keys (KV tier disk) is read only where queries look. The paper adds up the attention of every query; here
// the last one of each block is observed.
#include "attention/block_sums.h"
#include "attention/patterns/choosing_pattern.h"

namespace millrace {
namespace {

class H2oBlocks final : public ChoosingPattern {
 public:
  explicit H2oBlocks(const OptionValues& options)
      : ChoosingPattern(options),
        counts_{.top = options.integer("top"),
                .kept = std::max(options.integer("tracked"), options.integer("top")) + options.integer("sinks") +
                        options.integer("window")} {}

  HeadChoice choice(const PatternPlace&) const override { return HeadChoice::sums; }
  SumCounts sums() const override { return counts_; }

  // No summaries: blocks are not scored by their keys.
  int64_t summary_floats(int64_t /*head_dim*/) const override { return 0; }
  void add_key(const PatternPlace&, std::span<const float>, std::span<float>) const override {}
  void add_query(const PatternPlace&, std::span<const float>, std::span<float>) const override {}

 private:
  const SumCounts counts_;
};

}  // namespace

Result<std::unique_ptr<AttentionPattern>> make_h2o_blocks(const OptionValues& options) {
  return std::unique_ptr<AttentionPattern>(std::make_unique<H2oBlocks>(options));
}

}  // namespace millrace
