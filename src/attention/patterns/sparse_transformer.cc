// Sparse Transformers: two sets of keys, through which any earlier token reaches a later one in two steps. With i the
// query's block, j a key's block and l the stride:
//
//   strided   A1 = { j: i - l <= j <= i }               A2 = { j: (i - j) mod l = 0 }
//   fixed     A1 = { j: floor(j / l) = floor(i / l) }   A2 = { j: j mod l >= l - c }
//
// The paper states them for tokens and computes blocks of them. Heads take turns with A1 and A2, or layers do, or every
// head sees both. A query sees its own block with A2 too.
#include "attention/patterns/factories.h"

namespace millrace {
namespace {

struct SparseFactors {
  bool fixed = false;
  int64_t stride = 1;
  int64_t summary = 1;  // c
  enum class Split { merged, heads, layers } split = Split::merged;
};

class SparseTransformer final : public AttentionPattern {
 public:
  explicit SparseTransformer(const SparseFactors& factors) : f_(factors) {}

  void mark(const PatternPlace& at, int64_t query_block, BlockMarks& marks) const override {
    const int64_t turn = f_.split == SparseFactors::Split::heads ? at.head : at.layer;
    const bool merged = f_.split == SparseFactors::Split::merged;
    if (merged || turn % 2 == 0) marks.add(near(query_block), query_block);
    if (merged || turn % 2 == 1) mark_far(query_block, marks);
  }

 private:
  int64_t near(int64_t query_block) const {
    return f_.fixed ? query_block / f_.stride * f_.stride : query_block - f_.stride;
  }
  void mark_far(int64_t query_block, BlockMarks& marks) const {
    if (!f_.fixed) {
      for (int64_t j = query_block - f_.stride; j >= 0; j -= f_.stride) marks.add(j);
      return;
    }
    for (int64_t end = f_.stride; end - f_.summary < query_block; end += f_.stride) marks.add(end - f_.summary, end);
  }

  SparseFactors f_;
};

}  // namespace

Result<std::unique_ptr<AttentionPattern>> make_sparse_transformer(const OptionValues& options) {
  SparseFactors f;
  const std::string& form = options.text("form");
  const std::string& split = options.text("split");
  if (form != "strided" && form != "fixed") return Error::user("form: must be strided or fixed, got '" + form + "'");
  if (split != "merged" && split != "heads" && split != "layers")
    return Error::user("split: must be merged, heads or layers, got '" + split + "'");
  f.fixed = form == "fixed";
  f.stride = options.integer("stride");
  f.summary = options.integer("summary");
  if (f.fixed && f.summary > f.stride) return Error::user("summary: must be at most the stride");
  f.split = split == "merged"  ? SparseFactors::Split::merged
            : split == "heads" ? SparseFactors::Split::heads
                               : SparseFactors::Split::layers;
  return std::unique_ptr<AttentionPattern>(std::make_unique<SparseTransformer>(f));
}

}  // namespace millrace
