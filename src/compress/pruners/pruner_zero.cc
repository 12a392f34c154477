// Pruner-Zero (Dong et al., 2024, "Pruner-Zero: Evolving Symbolic Pruning Metric from scratch for Large Language
// Models"): of each row, or of every M weights of a row, the weights of lowest score are pruned, and the score is a
// formula that a search over expressions found:
//
//   |W| |W| mms(|G|)     mms: scaled so that the matrix's least is 0 and its largest 1
//
// G is the gradient of the loss in the paper. There is no backward pass here. A row's gradient is the gradient of its
// output times its input; with both taken as independent, as in Kronecker-factored curvature, its root mean square is
// g_r |x_c|. The factor g_r of a row divides out, because only weights of one row are compared: so G here is the root
// mean square |x_c| of the weight's input over the calibration text. What is lost is how output gradients and inputs
// go together from token to token.
//
// The paper's search is genetic programming with the perplexity of the pruned model as fitness. Here the fitness is the
// sum over all matrices of the relative output error of some rows after pruning; every generation is one survey of the
// matrices. The published formula is in the first population and the best one is never lost, so the search finds none
// that is worse by this measure. The rest of a population are children of the better half, by crossing or mutation.
#include <algorithm>
#include <cmath>
#include <optional>

#include "compress/factories.h"
#include "compress/pruners/prune_pattern.h"
#include "compress/pruners/score_expression.h"

namespace millrace {
namespace {

constexpr int64_t kRankedRows = 8;  // of each matrix, evenly spaced
constexpr int kDepth = 3;           // of the first population

// |x_c|, as above.
std::vector<double> gradient_sizes(const LinearStatistics& statistics) {
  std::vector<double> out;
  for (double square : statistics.squares) out.push_back(std::sqrt(square / static_cast<double>(statistics.rows)));
  return out;
}

void prune_by(const ScoreExpression& metric, const PrunePattern& pattern, const LinearStatistics& statistics,
              PassMatrix& matrix, ThreadPool& pool) {
  const std::vector<double> scores = metric.scores(matrix.values, gradient_sizes(statistics));
  const auto row_scores = [&](int64_t row, double* out) {
    std::copy_n(scores.begin() + row * matrix.cols, matrix.cols, out);
  };
  prune_by_scores(matrix, pattern, false, row_scores, pool);
}

class MetricSearch {
 public:
  MetricSearch(const ScoreExpression& start, int64_t population, uint64_t seed) : engine_(seed) {
    candidates_.push_back({start});
    while (std::ssize(candidates_) < population) candidates_.push_back({ScoreExpression::random(kDepth, engine_)});
  }

  // What the candidates' masks add to the squared outputs of the matrix's trial rows, over these.
  void add(const PassMatrix& matrix, const PrunePattern& pattern, const LinearStatistics& statistics,
           ThreadPool& pool) {
    PassMatrix some;
    some.rows = std::min(kRankedRows, matrix.rows);
    some.cols = matrix.cols;
    for (int64_t i = 0; i < some.rows; ++i) {
      const float* row = matrix.values.data() + i * matrix.rows / some.rows * matrix.cols;
      some.values.insert(some.values.end(), row, row + matrix.cols);
    }
    const double all = squared_outputs(some, statistics.moments, false);
    if (!(all > 0)) return;
    pool.parallel_for(std::ssize(candidates_), [&](int64_t i, int) {
      Candidate& candidate = candidates_[static_cast<size_t>(i)];
      if (candidate.known) return;
      PassMatrix trial = some;
      ThreadPool alone(1);
      prune_by(candidate.metric, pattern, statistics, trial, alone);
      candidate.error += squared_outputs(trial, statistics.moments, true) / all;
    });
  }

  void next_generation() {
    sort();
    const size_t parents = (candidates_.size() + 1) / 2;
    for (size_t i = parents; i < candidates_.size(); ++i) {
      const ScoreExpression& one = candidates_[engine_() % parents].metric;
      const ScoreExpression& other = candidates_[engine_() % parents].metric;
      candidates_[i] = {engine_() % 2 == 0 ? one.crossed(other, engine_) : one.mutated(engine_)};
    }
  }

  const ScoreExpression& best() {
    sort();
    return candidates_.front().metric;
  }

 private:
  struct Candidate {
    ScoreExpression metric;
    double error = 0;
    bool known = false;  // all matrices were seen
  };

  void sort() {
    for (Candidate& candidate : candidates_) candidate.known = true;
    std::ranges::stable_sort(candidates_, {}, &Candidate::error);
  }

  // Of what is pruned, or of all.
  static double squared_outputs(const PassMatrix& matrix, const SecondMoments& moments, bool pruned) {
    double sum = 0;
    std::vector<double> row(static_cast<size_t>(matrix.cols));
    for (int64_t r = 0; r < matrix.rows; ++r) {
      for (int64_t c = 0; c < matrix.cols; ++c) {
        const double weight = matrix.values[static_cast<size_t>(r * matrix.cols + c)];
        row[static_cast<size_t>(c)] = !pruned || matrix.pruned(r, c) ? weight : 0;
      }
      sum += moments.form(row.data());
    }
    return sum;
  }

  std::mt19937_64 engine_;
  std::vector<Candidate> candidates_;
};

class PrunerZero final : public Pass {
 public:
  PrunerZero(const PrunePattern& pattern, ScoreExpression metric, const OptionValues& options)
      : pattern_(pattern), metric_(std::move(metric)), generations_(static_cast<int>(options.integer("search"))) {
    if (generations_ > 0)
      search_.emplace(metric_, options.integer("population"), static_cast<uint64_t>(options.integer("seed")));
  }

  uint32_t needs() const override { return generations_ > 0 ? kInputNorms | kSecondMoments : kInputNorms; }
  int surveys() const override { return generations_; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override {
    const int64_t held = generations_ > 0 ? ScoreExpression::kMaxSymbols / 4 : metric_.values_held();
    return prune_working_bytes(rows, cols, false) + held * rows * cols * static_cast<int64_t>(sizeof(double));
  }

  void survey(int time, const PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (!left_alone(matrix, pattern_).action.empty()) return;
    if (time != generation_) search_->next_generation();
    generation_ = time;
    search_->add(matrix, pattern_, statistics, pool);
  }

  Result<PassPreview> preview(PassMatrix& matrix) const override { return preview_pruned(matrix, pattern_); }
  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (PassRow left = left_alone(matrix, pattern_); !left.action.empty()) return left;
    if (search_) {
      metric_ = search_->best();
      search_.reset();
    }
    prune_by(metric_, pattern_, statistics, matrix, pool);
    return PassRow{"pruned", generations_ > 0 ? "by " + metric_.text() : "", {}};
  }

 private:
  PrunePattern pattern_;
  ScoreExpression metric_;
  int generations_, generation_ = 0;
  std::optional<MetricSearch> search_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_pruner_zero_pass(const OptionValues& options) {
  MILLRACE_TRY(const PrunePattern pattern, read_pattern(options));
  MILLRACE_TRY(ScoreExpression metric, ScoreExpression::parse(options.text("metric")));
  return std::unique_ptr<Pass>(std::make_unique<PrunerZero>(pattern, std::move(metric), options));
}

}  // namespace millrace
