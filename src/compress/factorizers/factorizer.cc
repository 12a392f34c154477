#include "compress/factorizers/factorizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compress/calibration/dense_sums.h"
#include "compress/output/preview.h"
#include "models/weight_parts_loader.h"

namespace millrace {
namespace {

constexpr int64_t kWidestBlock = 32;  // a row of B has as many values as the pair has ranks

void round_pair_to(const Format& format, std::vector<float>& values) {
  std::vector<uint8_t> stored(static_cast<size_t>(format.row_bytes(std::ssize(values))));
  format.encode(values.data(), stored.data(), std::ssize(values));
  format.decode(stored.data(), values.data(), std::ssize(values));
}

double largest_magnitude(const std::vector<double>& values) {
  double most = 0;
  for (double value : values) most = std::max(most, std::fabs(value));
  return most;
}

// A = B^T W, of the rows `b` of B^T.
std::vector<double> project_rows(const PassMatrix& matrix, const std::vector<double>& b, int64_t count) {
  std::vector<double> a(static_cast<size_t>(count * matrix.cols));
  for (int64_t k = 0; k < count; ++k)
    for (int64_t r = 0; r < matrix.rows; ++r)
      add_scaled(a.data() + k * matrix.cols, b[static_cast<size_t>(k * matrix.rows + r)],
                 matrix.values.data() + r * matrix.cols, matrix.cols);
  return a;
}

}  // namespace

Result<const Format*> factor_format(const std::string& name, bool pair) {
  const Format* format = find_format(name);
  if (!format || format->gguf_type < 0)
    return Error::user(fmt::format("{} '{}': must be a format that GGUF files can have, such as q8_0",
                                   pair ? "format" : "rest", name));
  if (pair && format->block_values > kWidestBlock)
    return Error::user(
        fmt::format("format '{}': has blocks of {} values, and ranks are multiples of them; at most {}, "
                    "as q8_0, q4_0 and f16 have",
                    name, format->block_values, kWidestBlock));
  return format;
}

Result<FactorOptions> read_factor_options(const OptionValues& options) {
  FactorOptions out{.ratio = options.number("ratio"), .loss = options.number("loss"), .rest = options.text("rest")};
  if (out.loss > 0 && options.given("ratio"))
    return Error::user("ratio and loss: give one of them; with loss the ratio follows from the matrix");
  MILLRACE_TRY(out.format, factor_format(options.text("format"), true));
  if (!out.rest.empty()) MILLRACE_TRY_VOID(factor_format(out.rest, false));
  return out;
}

int64_t Factorizer::working_bytes(int64_t rows, int64_t cols) const {
  return output_basis_bytes(rows, cols) + most_rank(rows, cols) * (rows + cols) * 24;
}

// Whole blocks; the last one may be padded with zeros.
int64_t Factorizer::most_rank(int64_t rows, int64_t cols) const {
  const int64_t full = (std::min(rows, cols) + block() - 1) / block() * block();
  return std::min(full, kMaxLowRank / block() * block());
}

int64_t Factorizer::rank_by_ratio(int64_t rows, int64_t cols) const {
  const double values = options_.ratio * static_cast<double>(rows) * static_cast<double>(cols);
  const auto rank = static_cast<int64_t>(values / static_cast<double>(rows + cols));
  return std::clamp(rank / block() * block(), block(), most_rank(rows, cols));
}

std::string Factorizer::cannot_factor(const PassMatrix& matrix) const {
  if (!matrix.no_parts.empty()) return std::string(matrix.no_parts);
  if (matrix.id.layer < 0) return "only the layers' matrices are factored";
  if (!matrix.parts.empty() || !matrix.encoded.empty()) return "an earlier pass has given it parts or levels";
  if (matrix.cols % block() != 0)
    return fmt::format("{} columns are not whole blocks of {}", matrix.cols, options_.format->name);
  return {};
}

Result<PassPreview> Factorizer::preview(PassMatrix& matrix) const {
  if (std::string why = cannot_factor(matrix); !why.empty()) return preview_left(std::move(why));
  preview_pair(matrix, rank_by_ratio(matrix.rows, matrix.cols), options_.format);
  matrix.parts.factored = true;
  preview_rest(matrix);
  return PassPreview{"factored", "", options_.loss > 0};  // the rank then follows from the weights
}

Result<PassRow> Factorizer::apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) {
  if (std::string why = cannot_factor(matrix); !why.empty()) return PassRow{"left", std::move(why), {}};
  for (size_t i = 0; i < matrix.kept.size(); ++i)
    if (!matrix.kept[i]) matrix.values[i] = 0;
  const int64_t rows = matrix.rows, cols = matrix.cols;
  int64_t rank = options_.loss > 0 ? most_rank(rows, cols) : rank_by_ratio(rows, cols);
  OutputBasis found = basis(matrix, statistics, std::min({rank, rows, cols}), pool);
  if (!found.found) return PassRow{"left", "its singular values are not finite", {}};
  if (options_.loss > 0) {
    const int64_t most = rank;
    for (rank = block(); rank < most && dropped_energy(found.energies, rank) > options_.loss;) rank += block();
    if (options_.format->row_bytes(cols) * rank + options_.format->row_bytes(rank) * rows >=
        matrix.format->row_bytes(cols) * rows)
      return PassRow{"left",
                     fmt::format("a pair in {} that loses {} takes rank {}, which is no smaller than the matrix in {}",
                                 options_.format->name, options_.loss, rank, matrix.format->name),
                     {}};
    found.vectors.resize(static_cast<size_t>(std::min({rank, rows, cols}) * rows));
  }
  store(matrix, std::move(found.vectors), rank, pool);
  complete(matrix, statistics, pool);
  PassRow row{"factored", "", {{"rank", static_cast<double>(rank)}}};
  if (!found.energies.empty()) row.figures.emplace_back("dropped", dropped_energy(found.energies, rank));
  return row;
}

// Both factors are scaled so that their largest values are about the same: F16 has a narrow range.
void Factorizer::store(PassMatrix& matrix, std::vector<double> vectors, int64_t rank, ThreadPool& pool) const {
  const int64_t rows = matrix.rows;
  const Format& format = *options_.format;
  PassParts& parts = matrix.parts;
  vectors.resize(static_cast<size_t>(rank * rows));  // zero rows, up to a whole block
  double most = 0;
  for (float value : matrix.values) most = std::max(most, std::fabs(double{value}));
  const double scale = most > 0 && largest_magnitude(vectors) > 0 ? std::sqrt(most / largest_magnitude(vectors)) : 1;
  parts.rank = rank;
  parts.low_rank_format = &format;
  parts.factored = true;
  parts.low_rank_b.resize(static_cast<size_t>(rows * rank));
  for (int64_t k = 0; k < rank; ++k)
    for (int64_t r = 0; r < rows; ++r)
      parts.low_rank_b[static_cast<size_t>(r * rank + k)] =
          static_cast<float>(scale * vectors[static_cast<size_t>(k * rows + r)]);
  round_pair_to(format, parts.low_rank_b);
  for (int64_t k = 0; k < rank; ++k)
    for (int64_t r = 0; r < rows; ++r)
      vectors[static_cast<size_t>(k * rows + r)] = parts.low_rank_b[static_cast<size_t>(r * rank + k)];
  std::vector<double> inner = solve_inner(matrix, vectors, rank, pool);
  if (inner.empty()) {  // rounding made columns depend on each other
    inner = project_rows(matrix, vectors, rank);
    for (double& value : inner) value /= scale * scale;
  }
  parts.low_rank_a.assign(inner.begin(), inner.end());
  round_pair_to(format, parts.low_rank_a);
}

}  // namespace millrace
