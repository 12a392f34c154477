// Statically structured sparse attention (Dai et al., 2023): the matrix of attention is split into regions that are
// computed densely, and nothing outside of them is. Here these are squares of `region` blocks on the diagonal, the
// `reach` squares before each, and a strip of the first blocks:
//
//   strip 1, region 2, reach 1       query block 0  q
//                                                1  x q
//                                                2  x x q
//                                                3  x x x q
//                                                4  x . x x q
//                                                5  x . x x x q
//
// All queries of a region see the same blocks before it, so their masks differ in no row. The paper finetunes models
// until attention gathers in the regions; here models are as they are.
#include "attention/patterns/factories.h"

namespace millrace {
namespace {

class StructuredSparse final : public AttentionPattern {
 public:
  StructuredSparse(int64_t region, int64_t reach, int64_t strip) : region_(region), reach_(reach), strip_(strip) {}
  void mark(const PatternPlace&, int64_t query_block, BlockMarks& marks) const override {
    marks.add(0, strip_);
    marks.add((query_block / region_ - reach_) * region_, query_block);
  }

 private:
  int64_t region_, reach_, strip_;
};

}  // namespace

Result<std::unique_ptr<AttentionPattern>> make_structured_sparse(const OptionValues& options) {
  return std::unique_ptr<AttentionPattern>(std::make_unique<StructuredSparse>(
      options.integer("region"), options.integer("reach"), options.integer("strip")));
}

}  // namespace millrace
