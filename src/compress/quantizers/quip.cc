// QuIP (Chee et al., 2023, "QuIP: 2-Bit Quantization of Large Language Models With Guarantees"): a matrix whose weights
// and whose inputs' second moments are incoherent, none much larger than the others, loses least when it is rounded. So
// the columns are multiplied by an orthogonal random matrix first; at run time the inputs are multiplied by it, too.
// Then LDLQ rounds one column after the other with the errors so far in view (compress/rounding/column_rounding.h), and
// greedy sweeps over the columns bring the error further down.
//
//   y = (W S H) (H S x)     S: random signs, H: Hadamard matrices of blocks of columns
//
// Signs and a Hadamard matrix in place of the paper's Kronecker products are those of its successor QuIP#. Only the
// inputs' side is multiplied: outputs would need a transform after the product, which matrices have no part for.
// The sizes of blocks are powers of two: 704 columns have 11 blocks of 64.
#include <fmt/format.h>

#include "compress/factories.h"
#include "compress/matrix_parts.h"
#include "compress/output/preview.h"
#include "compress/rounding/column_rounding.h"
#include "compress/rounding/coordinate_descent.h"
#include "compress/rounding/incoherence.h"

namespace millrace {
namespace {

struct QuipOptions {
  const Format* format = nullptr;
  int greedy = 0;
  double damp = 0.01;
  uint64_t seed = 0;
  RoundingOptions rounding;
};

class Quip final : public Pass {
 public:
  explicit Quip(const QuipOptions& options) : options_(options) {}

  uint32_t needs() const override { return kSecondMoments; }
  std::string format() const override { return std::string(options_.format->name); }
  int64_t working_bytes(int64_t /*rows*/, int64_t cols) const override {
    return ColumnFactor::bytes(cols) + changed_moments_bytes(cols) + descent_bytes(cols);
  }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    PassPreview out = preview_levels(matrix);
    if (out.action == "left") return out;
    if (std::string why = why_not_incoherent(matrix); !why.empty()) return preview_left(std::move(why));
    if (matrix.no_parts.empty()) preview_incoherent(matrix);
    return out;
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (const std::string why = why_without_levels(matrix); !why.empty()) return PassRow{"left", why, {}};
    if (const std::string why = why_not_incoherent(matrix); !why.empty()) return PassRow{"left", why, {}};
    if (matrix.no_parts.empty()) make_incoherent(matrix, statistics.id, options_.seed, pool);
    if (!factor_.prepare(matrix, statistics, options_.damp, false, pool))
      return PassRow{"rotated", "its inputs are all zero or not finite", {}};
    round_columns(matrix, factor_.factor(), factor_.order(), options_.rounding, {}, pool);
    if (options_.greedy > 0) descend(matrix, factor_.moments(), options_.greedy, pool);
    return PassRow{"quantized", "", {{"block", static_cast<double>(matrix.parts.input.hadamard)}}};
  }

 private:
  QuipOptions options_;
  ColumnFactor factor_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_quip_pass(const OptionValues& values) {
  QuipOptions options;
  MILLRACE_TRY(options.format, level_format(values.text("format")));
  MILLRACE_TRY(options.rounding.search, fit_searches(values.text("fit")));
  options.greedy = static_cast<int>(values.integer("greedy"));
  options.damp = values.number("damp");
  options.seed = static_cast<uint64_t>(values.integer("seed"));
  return std::unique_ptr<Pass>(std::make_unique<Quip>(options));
}

}  // namespace millrace
