// Every earlier block: the bits of attention without a pattern.
#include "attention/patterns/factories.h"

namespace millrace {
namespace {

class AllBlocks final : public AttentionPattern {
 public:
  void mark(const PatternPlace&, int64_t query_block, BlockMarks& marks) const override { marks.add(0, query_block); }
};

}  // namespace

Result<std::unique_ptr<AttentionPattern>> make_all_blocks(const OptionValues&) {
  return std::unique_ptr<AttentionPattern>(std::make_unique<AllBlocks>());
}

}  // namespace millrace
