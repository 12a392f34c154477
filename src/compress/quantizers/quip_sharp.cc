// QuIP# (Tseng et al., 2024, "QuIP#: Even Better LLM Quantization with Hadamard Incoherence and Lattice Codebooks"):
// random signs and Hadamard matrices make the columns of a matrix incoherent, its weights then look like a ball of
// normally distributed numbers, and points of the lattice E8, the densest packing in eight dimensions, cover such a
// ball with 2 bits a weight better than any levels of single weights. Block LDLQ chooses the points
// (compress/rounding/lattice_rounding.h). With 3 and 4 bits, what is left of eight weights becomes a second, finer
// point: the paper's residual quantization.
//
// As with quip, only the inputs' side is multiplied unless the option `output` is set; a scale for 256 weights of a row
// makes up for rows of different size. Errors of rows add up, so block LDLQ is the same with rows multiplied: the
// Hadamard matrix is orthogonal. The paper's training of the signs and of all that is not rounded is left out. Matrices
// whose rows are no multiple of 256 have levels of another format, which LDLQ chooses one by one.
#include <fmt/format.h>

#include "compress/factories.h"
#include "compress/matrix_parts.h"
#include "compress/output/preview.h"
#include "compress/rounding/column_rounding.h"
#include "compress/rounding/coordinate_descent.h"
#include "compress/rounding/incoherence.h"
#include "compress/rounding/lattice_codes.h"
#include "compress/rounding/lattice_rounding.h"

namespace millrace {
namespace {

struct QuipSharpOptions {
  std::string format = "e8p";
  LatticeOptions lattice;
  double damp = 0.01;
  uint64_t seed = 0;
  bool output = false;
};

class QuipSharp final : public Pass {
 public:
  explicit QuipSharp(const QuipSharpOptions& options) : options_(options) {}

  uint32_t needs() const override { return kSecondMoments; }
  std::string format() const override { return options_.format; }
  int64_t working_bytes(int64_t /*rows*/, int64_t cols) const override {
    return ColumnFactor::bytes(cols) + changed_moments_bytes(cols) + std::max(descent_bytes(cols), lattice_bytes(cols));
  }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    if (std::string why = why_not(matrix); !why.empty()) return preview_left(std::move(why));
    if (matrix.no_parts.empty()) preview_incoherent(matrix);
    if (turns_rows(matrix)) preview_rows_incoherent(matrix);
    return PassPreview{"quantized", "", false};
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (const std::string why = why_not(matrix); !why.empty()) return PassRow{"left", why, {}};
    if (matrix.no_parts.empty()) make_incoherent(matrix, statistics.id, options_.seed, pool);
    if (turns_rows(matrix)) make_rows_incoherent(matrix, options_.seed, pool);
    if (!factor_.prepare(matrix, statistics, options_.damp, false, pool))
      return PassRow{"rotated", "its inputs are all zero or not finite", {}};
    if (is_lattice(matrix)) {
      round_to_lattice(matrix, factor_.factor(), factor_.moments(), options_.lattice, pool);
    } else {
      round_columns(matrix, factor_.factor(), factor_.order(), {.search = options_.lattice.search}, {}, pool);
      if (options_.lattice.sweeps > 0) descend(matrix, factor_.moments(), options_.lattice.sweeps, pool);
    }
    return PassRow{"quantized", "", {{"block", static_cast<double>(matrix.parts.input.hadamard)}}};
  }

 private:
  bool turns_rows(const PassMatrix& matrix) const { return options_.output && matrix.no_parts.empty(); }
  static bool is_lattice(const PassMatrix& matrix) { return find_lattice(*matrix.format) != nullptr; }
  static std::string why_not(const PassMatrix& matrix) {
    if (!is_lattice(matrix))
      if (std::string why = why_without_levels(matrix); !why.empty()) return why;
    return why_not_incoherent(matrix);
  }

  QuipSharpOptions options_;
  ColumnFactor factor_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_quip_sharp_pass(const OptionValues& values) {
  QuipSharpOptions options;
  if (const int64_t bits = values.integer("bits"); bits != 2) options.format += fmt::format("_{}", bits);
  MILLRACE_TRY(options.lattice.search, fit_searches(values.text("fit")));
  options.lattice.sweeps = static_cast<int>(values.integer("sweeps"));
  options.output = values.boolean("output");
  options.damp = values.number("damp");
  options.seed = static_cast<uint64_t>(values.integer("seed"));
  return std::unique_ptr<Pass>(std::make_unique<QuipSharp>(options));
}

}  // namespace millrace
