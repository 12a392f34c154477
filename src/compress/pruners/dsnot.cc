// DSnoT (Zhang et al., 2023, "Dynamic Sparse No Training: Training-Free Fine-tuning for Sparse LLMs"): starts from the
// mask of another pruner and swaps weights of a row, without changing any. With the expected error of the row's output,
// eps = sum over pruned weights of w * E[x], one cycle
//
//   - brings back the pruned weight with the largest sign(eps) * w * E[x] / Var[x],
//   - prunes, of the weights that are left and for which sign(eps) * w * E[x] < 0, the one with the smallest |w| * |x|,
//
// until |eps| is below the threshold, T cycles are done, or a swap would not make |eps| smaller; the last is added
// here. With an N:M pattern both are of the same M weights. |x| is the norm of an input over the calibration text. Of
// equal candidates the first one is taken.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compress/factories.h"
#include "compress/pruners/prune_pattern.h"

namespace millrace {
namespace {

struct DsnotOptions {
  PrunePattern pattern;
  bool start_by_inputs = true;  // wanda, otherwise magnitude
  int64_t cycles = 50;          // T
  double threshold = 0.1;       // of |eps|
};

struct InputMoments {
  std::vector<double> mean, variance, norm;  // [cols]
};

InputMoments moments_of(const LinearStatistics& statistics) {
  InputMoments out;
  const auto rows = static_cast<double>(statistics.rows);
  for (size_t c = 0; c < statistics.squares.size(); ++c) {
    const double mean = statistics.sums[c] / rows, square = statistics.squares[c] / rows;
    out.mean.push_back(mean);
    // At least what double precision can tell, so that a constant input divides nothing by zero.
    out.variance.push_back(std::max({square - mean * mean, 1e-12 * square, 1e-300}));
    out.norm.push_back(std::sqrt(statistics.squares[c]));
  }
  return out;
}

// Swaps weights of one row.
class RowSwaps {
 public:
  RowSwaps(const DsnotOptions& options, const InputMoments& inputs, const float* values, uint8_t* kept)
      : options_(options), inputs_(inputs), values_(values), kept_(kept), cols_(std::ssize(inputs.mean)) {}

  // The number of swaps.
  int64_t run() {
    for (int64_t c = 0; c < cols_; ++c)
      if (!kept_[c]) error_ += effect(c);
    int64_t swaps = 0;
    for (; swaps < options_.cycles && std::fabs(error_) >= options_.threshold; ++swaps) {
      const int64_t grown = to_grow();
      const int64_t pruned = grown < 0 ? -1 : to_prune(grown);
      if (pruned < 0) break;
      const double next = error_ - effect(grown) + effect(pruned);
      if (!(std::fabs(next) < std::fabs(error_))) break;
      kept_[grown] = 1;
      kept_[pruned] = 0;
      error_ = next;
    }
    return swaps;
  }

 private:
  // What the weight adds to the row's expected output.
  double effect(int64_t col) const {
    return static_cast<double>(values_[col]) * inputs_.mean[static_cast<size_t>(col)];
  }
  double along(int64_t col) const { return error_ > 0 ? effect(col) : -effect(col); }

  int64_t to_grow() const {
    int64_t best = -1;
    double most = 0;
    for (int64_t c = 0; c < cols_; ++c) {
      if (kept_[c]) continue;
      const double gain = along(c) / inputs_.variance[static_cast<size_t>(c)];
      if (gain > most) {
        most = gain;
        best = c;
      }
    }
    return best;
  }

  int64_t to_prune(int64_t grown) const {
    const int64_t group = options_.pattern.group(cols_), begin = grown / group * group;
    int64_t best = -1;
    double least = 0;
    for (int64_t c = begin; c < begin + group; ++c) {
      if (!kept_[c] || !(along(c) < 0)) continue;
      const double score = std::fabs(static_cast<double>(values_[c])) * inputs_.norm[static_cast<size_t>(c)];
      if (best < 0 || score < least) {
        least = score;
        best = c;
      }
    }
    return best;
  }

  const DsnotOptions& options_;
  const InputMoments& inputs_;
  const float* values_;
  uint8_t* kept_;
  int64_t cols_;
  double error_ = 0;  // eps
};

class Dsnot final : public Pass {
 public:
  explicit Dsnot(const DsnotOptions& options) : options_(options) {}

  uint32_t needs() const override { return kInputNorms | kInputSums; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override { return prune_working_bytes(rows, cols, false); }
  Result<PassPreview> preview(PassMatrix& matrix) const override { return preview_pruned(matrix, options_.pattern); }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (PassRow left = left_alone(matrix, options_.pattern); !left.action.empty()) return left;
    const InputMoments inputs = moments_of(statistics);
    const auto score = [&](int64_t row, double* scores) {
      const float* values = matrix.values.data() + row * matrix.cols;
      for (int64_t c = 0; c < matrix.cols; ++c)
        scores[c] = std::fabs(static_cast<double>(values[c])) *
                    (options_.start_by_inputs ? inputs.norm[static_cast<size_t>(c)] : 1);
    };
    prune_by_scores(matrix, options_.pattern, false, score, pool);
    std::vector<double> swaps(static_cast<size_t>(matrix.rows));
    pool.parallel_for(matrix.rows, [&](int64_t r, int) {
      RowSwaps row(options_, inputs, matrix.values.data() + r * matrix.cols, matrix.kept.data() + r * matrix.cols);
      swaps[static_cast<size_t>(r)] = static_cast<double>(row.run());
    });
    double sum = 0;
    for (double count : swaps) sum += count;
    return PassRow{"pruned", "", {{"swaps_per_row", sum / static_cast<double>(matrix.rows)}}};
  }

 private:
  DsnotOptions options_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_dsnot_pass(const OptionValues& values) {
  DsnotOptions options;
  MILLRACE_TRY(options.pattern, read_pattern(values));
  const std::string& start = values.text("start");
  if (start != "wanda" && start != "magnitude")
    return Error::user(fmt::format("start '{}': must be wanda or magnitude", start));
  options.start_by_inputs = start == "wanda";
  options.cycles = values.integer("cycles");
  options.threshold = values.number("threshold");
  return std::unique_ptr<Pass>(std::make_unique<Dsnot>(options));
}

}  // namespace millrace
