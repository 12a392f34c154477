// BiLLM (Huang et al., 2024, "BiLLM: Pushing the Limit of Post-Training Quantization for LLMs"): weights as signs under
// a few magnitudes. Columns of large salience, w^2 times the squared diagonal of the Hessian's factor, are binarized
// twice, the second time what the first left:  +-a1 +-a2.  The others are split at a magnitude p: the many small ones
// of the bell-shaped middle and the few large ones each have a magnitude,  +-b1 or +-b2.  Magnitudes are chosen for
// each row and block of columns, and later columns make up for the error of earlier ones, as in GPTQ.
//
// Stored in 2 bits a weight: indices into codebooks of four, one for each row and block. (The paper counts 1.08 bits,
// to which a mark for the middle comes, another bit.) Salient columns stand first, by an input permutation, so that
// every block has one kind of table; their number is a number of whole blocks.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "compress/factories.h"
#include "compress/output/preview.h"
#include "compress/pass_options.h"
#include "compress/rounding/triangle_factor.h"
#include "tensor/half.h"

namespace millrace {
namespace {

constexpr int kMagnitudes = 40;   // magnitudes p tried
constexpr int kFactorTries = 12;  // dampings

using MagnitudeTable = std::array<float, 4>;

float stored_magnitude(double value) {
  return f16_to_f32(f32_to_f16(std::clamp(static_cast<float>(value), -65504.0f, 65504.0f)));
}

MagnitudeTable twice_binarized(const std::vector<double>& values) {
  double first = 0, second = 0;
  for (double w : values) first += std::fabs(w) / static_cast<double>(values.size());
  for (double w : values) second += std::fabs(std::fabs(w) - first) / static_cast<double>(values.size());
  return {stored_magnitude(-first - second), stored_magnitude(-first + second), stored_magnitude(first - second),
          stored_magnitude(first + second)};
}

// The split with the smallest squared error: sum of w^2 less those that the two means explain.
MagnitudeTable split_at_magnitude(const std::vector<double>& values) {
  double most = 0;
  for (double w : values) most = std::max(most, std::fabs(w));
  double best = -1;
  MagnitudeTable out{};
  for (int k = 1; k <= kMagnitudes; ++k) {
    const double p = most * k / kMagnitudes;
    double sums[2] = {}, counts[2] = {};
    for (double w : values) {
      sums[std::fabs(w) > p] += std::fabs(w);
      ++counts[std::fabs(w) > p];
    }
    double explained = 0, means[2] = {};
    for (int i = 0; i < 2; ++i)
      if (counts[i] > 0) {
        means[i] = sums[i] / counts[i];
        explained += sums[i] * means[i];
      }
    if (explained <= best) continue;
    best = explained;
    if (counts[1] == 0) means[1] = means[0];
    out = {stored_magnitude(-means[1]), stored_magnitude(-means[0]), stored_magnitude(means[0]),
           stored_magnitude(means[1])};
  }
  return out;
}

// Of two equally near, the first.
uint32_t nearest_magnitude(const MagnitudeTable& table, double x) {
  uint32_t best = 0;
  for (uint32_t i = 1; i < 4; ++i)
    if (std::fabs(x - table[i]) < std::fabs(x - table[best])) best = i;
  return best;
}

class BiLlm final : public Pass {
 public:
  BiLlm(int64_t block, double salient, double damp, const Format* format)
      : block_(block), salient_(salient), damp_(damp), format_(format) {}

  uint32_t needs() const override { return kSecondMoments; }
  std::string format() const override { return format_ ? std::string(format_->name) : ""; }
  bool fixes_levels() const override { return true; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override {
    return TriangleFactor::bytes(cols) + rows * (cols / block_ + 1) * 8;
  }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    if (std::string why = keeps_its_inputs(matrix); !why.empty()) return preview_left(std::move(why));
    if (matrix.cols % block_ != 0)
      return preview_left(fmt::format("{} columns are not a multiple of {}", matrix.cols, block_));
    preview_order(matrix);
    preview_tables(matrix, 2, block_);
    return PassPreview{"quantized", "", false};
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (const std::string why = keeps_its_inputs(matrix); !why.empty()) return PassRow{"left", why, {}};
    if (matrix.cols % block_ != 0)
      return PassRow{"left", fmt::format("{} columns are not a multiple of {}", matrix.cols, block_), {}};
    std::vector<int32_t> order(static_cast<size_t>(matrix.cols));
    std::iota(order.begin(), order.end(), 0);
    TriangleFactor factor;
    if (!factor_of(statistics, order, factor, pool))
      return PassRow{"left", "its inputs are all zero or not finite", {}};
    const int64_t salient = put_salient_first(matrix, factor, order);
    if (!factor_of(statistics, order, factor, pool))
      return PassRow{"left", "its inputs are all zero or not finite", {}};
    matrix.parts.input.order = order;
    store_rows(matrix, pool);
    Codebook& book = matrix.codebook;
    book.bits = 2;
    book.rows_per_table = 1;
    book.cols_per_table = block_;
    book.tables_per_row = matrix.cols / block_;
    book.entries.resize(static_cast<size_t>(matrix.rows * book.tables_per_row * 4));
    matrix.encoded.assign(static_cast<size_t>(matrix.rows * book.row_bytes(matrix.cols)), 0);
    pool.parallel_for(matrix.rows, [&](int64_t r, int) { binarize_row(matrix, factor, salient, r); });
    return PassRow{"quantized", "", {{"salient columns", static_cast<double>(salient)}}};
  }

 private:
  bool factor_of(const LinearStatistics& statistics, const std::vector<int32_t>& order, TriangleFactor& factor,
                 ThreadPool& pool) const {
    const double mean = statistics.moments.diagonal_mean();
    if (!(mean > 0) || !(mean < 1e300)) return false;
    double damping = damp_;
    for (int i = 0; i < kFactorTries; ++i, damping = std::max(damping * 10, 1e-6))
      if (factor.factor(statistics.moments, order, damping * mean, pool)) return true;
    return false;
  }

  // Whole blocks of the columns with the largest sum of saliences; returns their number. Both kinds keep their order.
  int64_t put_salient_first(const PassMatrix& matrix, const TriangleFactor& factor, std::vector<int32_t>& order) const {
    const auto wanted = static_cast<int64_t>(std::nearbyint(salient_ * static_cast<double>(matrix.cols / block_)));
    const int64_t count = salient_ > 0 ? std::max<int64_t>(1, wanted) * block_ : 0;
    std::vector<double> salience(static_cast<size_t>(matrix.cols));
    for (int64_t r = 0; r < matrix.rows; ++r)
      for (int64_t c = 0; c < matrix.cols; ++c)
        salience[static_cast<size_t>(c)] +=
            std::pow(matrix.values[static_cast<size_t>(r * matrix.cols + c)] * factor.diagonal(c), 2);
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
      return salience[static_cast<size_t>(a)] > salience[static_cast<size_t>(b)];
    });
    std::sort(order.begin(), order.begin() + count);
    std::sort(order.begin() + count, order.end());
    return count;
  }

  // Column by column; the target of a column makes up for what the errors of those before add to the outputs.
  void binarize_row(PassMatrix& matrix, const TriangleFactor& factor, int64_t salient, int64_t r) const {
    const int64_t cols = matrix.cols;
    const float* w = matrix.values.data() + r * cols;
    uint8_t* indices = matrix.encoded.data() + r * matrix.codebook.row_bytes(cols);
    std::vector<double> carried(static_cast<size_t>(cols));
    std::vector<double> targets(static_cast<size_t>(block_));
    for (int64_t begin = 0; begin < cols; begin += block_) {
      for (int64_t c = begin; c < begin + block_; ++c)
        targets[static_cast<size_t>(c - begin)] = w[c] + carried[static_cast<size_t>(c)] / factor.diagonal(c);
      const MagnitudeTable table = begin < salient ? twice_binarized(targets) : split_at_magnitude(targets);
      for (size_t i = 0; i < 4; ++i)
        matrix.codebook.entries[static_cast<size_t>((r * (cols / block_) + begin / block_) * 4) + i] =
            f32_to_f16(table[i]);
      for (int64_t c = begin; c < begin + block_; ++c) {
        const double target = w[c] + carried[static_cast<size_t>(c)] / factor.diagonal(c);
        const uint32_t index = nearest_magnitude(table, target);
        set_codebook_index(matrix.codebook, indices, c, index);
        const double error = double{w[c]} - table[index];
        const double* line = factor.row(c) - c;
        for (int64_t j = c + 1; j < cols; ++j) carried[static_cast<size_t>(j)] += line[j] * error;
      }
    }
  }

  int64_t block_;
  double salient_, damp_;
  const Format* format_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_billm_pass(const OptionValues& options) {
  MILLRACE_TRY(const Format* format, stored_format(options));
  const int64_t block = options.integer("block");
  if (block % 8 != 0) return Error::user(fmt::format("block {}: must be a multiple of 8 columns", block));
  return std::unique_ptr<Pass>(
      std::make_unique<BiLlm>(block, options.number("salient"), options.number("damp"), format));
}

}  // namespace millrace
