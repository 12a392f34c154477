// Longformer, its autoregressive form: a window, with gaps between its blocks in some heads of the upper layers, and
// global tokens at the beginning, which every token sees. The paper counts tokens, this counts blocks. That global
// tokens see every token changes nothing here: they are the first ones.
#include "attention/patterns/factories.h"

namespace millrace {
namespace {

struct LongformerShape {
  int64_t window, global, dilation, dilated_heads, dilated_from;
};

class Longformer final : public AttentionPattern {
 public:
  explicit Longformer(const LongformerShape& shape) : shape_(shape) {}
  void mark(const PatternPlace& at, int64_t query_block, BlockMarks& marks) const override {
    const bool dilated = at.layer >= shape_.dilated_from && at.head >= at.heads - shape_.dilated_heads;
    const int64_t step = dilated ? shape_.dilation : 1;
    for (int64_t i = 1; i < shape_.window; ++i) marks.add(query_block - i * step);
    marks.add(0, shape_.global);
  }

 private:
  LongformerShape shape_;
};

}  // namespace

Result<std::unique_ptr<AttentionPattern>> make_longformer(const OptionValues& options) {
  const LongformerShape shape{options.integer("window"), options.integer("global"), options.integer("dilation"),
                              options.integer("dilated_heads"), options.integer("dilated_from")};
  return std::unique_ptr<AttentionPattern>(std::make_unique<Longformer>(shape));
}

}  // namespace millrace
