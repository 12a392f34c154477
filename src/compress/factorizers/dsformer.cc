// DSFormer (Chand et al., 2023, "DSFormer: Effective Compression of Text-Transformers by Dense-Sparse Weight
// Factorization"): a matrix becomes a product D S of a small dense matrix and a sparse one with a few values in each
// column. So every column of the matrix is near a subspace of its own, spanned by a few of the columns of D that all
// share, where a pair of low rank has one subspace for all. A product is a sparse one and a thin dense one.
//
// The paper learns both factors with the task, by gradients (its Straight-Through Factorizer). Here nothing is trained:
// both are fitted to the matrix in turns, S by orthogonal matching pursuit and D by least squares, columns weighted by
// the mean square of their inputs. D begins with the singular vectors that asvd has; S is chosen once more for the
// rounded D.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compress/factories.h"
#include "compress/factorizers/dense_sparse.h"
#include "compress/factorizers/factorizer.h"
#include "compress/output/preview.h"
#include "models/weight_parts_loader.h"

namespace millrace {
namespace {

constexpr int64_t kSparseBytes = 8;  // of a value and its column

struct DsformerOptions {
  FactorOptions pair;  // format and rest
  double atoms = 0.5;  // columns of D, as a part of the smaller side
  int64_t nonzeros = 16;
  int64_t iterations = 8;
};

class Dsformer final : public Pass {
 public:
  explicit Dsformer(DsformerOptions options) : options_(std::move(options)) {}

  uint32_t needs() const override { return kInputNorms; }
  std::string format() const override { return options_.pair.rest; }
  bool fixes_levels() const override { return true; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override {
    const int64_t atoms = atoms_of(rows, cols);
    return output_basis_bytes(rows, cols) + DenseSparse::bytes(rows, cols, atoms, options_.nonzeros) +
           atoms * rows * 16;
  }

  Result<PassPreview> preview(PassMatrix& matrix) const override {
    const int64_t atoms = atoms_of(matrix.rows, matrix.cols), nonzeros = std::min(options_.nonzeros, atoms);
    if (std::string why = cannot_factor(matrix, atoms); !why.empty()) return preview_left(std::move(why));
    preview_pair(matrix, atoms, options_.pair.format);
    matrix.parts.low_rank_a.clear();  // the sparse matrix, of [atoms, cols], in its place
    matrix.parts.factored = true;
    preview_sparse(matrix, matrix.cols * nonzeros, atoms);
    return PassPreview{"factored", "", false};
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    const int64_t rows = matrix.rows, cols = matrix.cols, atoms = atoms_of(rows, cols);
    if (std::string why = cannot_factor(matrix, atoms); !why.empty()) return PassRow{"left", std::move(why), {}};
    for (size_t i = 0; i < matrix.kept.size(); ++i)
      if (!matrix.kept[i]) matrix.values[i] = 0;
    InputWeights weights;
    std::vector<double> squares;
    for (double square : statistics.squares) {
      squares.push_back(square / static_cast<double>(statistics.rows));
      weights.scales.push_back(std::sqrt(squares.back()));
    }
    OutputBasis basis = output_basis(matrix, weights, std::min({atoms, rows, cols}), pool);
    if (!basis.found) return PassRow{"left", "its singular values are not finite", {}};
    basis.vectors.resize(static_cast<size_t>(atoms * rows));
    DenseSparse factors(matrix.values, std::move(squares), std::move(basis.vectors), options_.nonzeros, pool);
    factors.code();
    double least = factors.error();
    std::vector<double> best = factors.atoms();
    for (int64_t i = 0; i < options_.iterations; ++i) {
      factors.update();
      factors.code();
      if (!(factors.error() < least)) continue;
      least = factors.error();
      best = factors.atoms();
    }
    store(matrix, factors, best, atoms);
    return PassRow{"factored",
                   "",
                   {{"atoms", static_cast<double>(atoms)},
                    {"nonzeros", static_cast<double>(std::min(options_.nonzeros, atoms))},
                    {"dropped", factors.error()}}};
  }

 private:
  const Format& format_of_pair() const { return *options_.pair.format; }

  // Whole blocks of a row of D.
  int64_t atoms_of(int64_t rows, int64_t cols) const {
    const int64_t block = format_of_pair().block_values;
    const auto wanted = static_cast<int64_t>(std::round(options_.atoms * static_cast<double>(std::min(rows, cols))));
    return std::clamp((wanted + block / 2) / block * block, block, kMaxLowRank / block * block);
  }

  std::string cannot_factor(const PassMatrix& matrix, int64_t atoms) const {
    if (!matrix.no_parts.empty()) return std::string(matrix.no_parts);
    if (matrix.id.layer < 0) return "only the layers' matrices are factored";
    if (!matrix.parts.empty() || !matrix.encoded.empty()) return "an earlier pass has given it parts or levels";
    const int64_t bytes = format_of_pair().row_bytes(atoms) * matrix.rows +
                          kSparseBytes * matrix.cols * std::min(options_.nonzeros, atoms) + 4 * atoms;
    if (bytes >= matrix.format->row_bytes(matrix.cols) * matrix.rows)
      return fmt::format("{} atoms in {} and {} values a column are no smaller than the matrix in {}", atoms,
                         format_of_pair().name, options_.nonzeros, matrix.format->name);
    return {};
  }

  // D rounded, and S for the rounded one.
  void store(PassMatrix& matrix, DenseSparse& factors, const std::vector<double>& atoms, int64_t count) const {
    const int64_t rows = matrix.rows;
    const Format& format = format_of_pair();
    PassParts& parts = matrix.parts;
    parts.rank = count;
    parts.low_rank_format = &format;
    parts.factored = true;
    parts.low_rank_b.resize(static_cast<size_t>(rows * count));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < count; ++k)
        parts.low_rank_b[static_cast<size_t>(r * count + k)] =
            static_cast<float>(atoms[static_cast<size_t>(k * rows + r)]);
    std::vector<uint8_t> stored(static_cast<size_t>(format.row_bytes(rows * count)));
    format.encode(parts.low_rank_b.data(), stored.data(), rows * count);
    format.decode(stored.data(), parts.low_rank_b.data(), rows * count);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < count; ++k)
        factors.atoms()[static_cast<size_t>(k * rows + r)] = parts.low_rank_b[static_cast<size_t>(r * count + k)];
    factors.code();
    parts.sparse = factors.sparse();
  }

  DsformerOptions options_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_dsformer_pass(const OptionValues& values) {
  DsformerOptions options;
  MILLRACE_TRY(options.pair.format, factor_format(values.text("format"), true));
  options.pair.rest = values.text("rest");
  if (!options.pair.rest.empty()) MILLRACE_TRY_VOID(factor_format(options.pair.rest, false));
  options.atoms = values.number("atoms");
  options.nonzeros = values.integer("nonzeros");
  options.iterations = values.integer("iterations");
  return std::unique_ptr<Pass>(std::make_unique<Dsformer>(std::move(options)));
}

}  // namespace millrace
