// Wanda (Sun et al., 2023, "A Simple and Effective Pruning Approach for Large Language Models"): of each row, or of
// every M weights of a row, the weights with the smallest |w| * |x| are pruned, |x| being the norm of the weight's
// input over the calibration text. Of equal scores the first one is pruned. The other weights stay as they are.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "compress/factories.h"

namespace millrace {
namespace {

// Prunes `count` of the `size` weights from `begin` on: those with the smallest scores.
void prune_lowest(const std::vector<double>& scores, int64_t begin, int64_t size, int64_t count,
                  std::vector<int32_t>& order, uint8_t* kept) {
  order.resize(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), static_cast<int32_t>(begin));
  const auto lower = [&](int32_t a, int32_t b) {
    const double x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
    return x != y ? x < y : a < b;
  };
  std::nth_element(order.begin(), order.begin() + count, order.end(), lower);
  for (int64_t i = 0; i < count; ++i) kept[order[static_cast<size_t>(i)]] = 0;
}

class Wanda final : public Pass {
 public:
  Wanda(double sparsity, int64_t keep, int64_t of) : sparsity_(sparsity), keep_(keep), of_(of) {}

  uint32_t needs() const override { return kInputNorms; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override { return rows * cols; }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (matrix.id.layer < 0) return PassRow{"left", "the paper prunes the layers' matrices only", {}};
    if (of_ > 0 && matrix.cols % of_ != 0)
      return PassRow{"left", fmt::format("{} columns are not a multiple of {}", matrix.cols, of_), {}};
    matrix.kept.resize(matrix.values.size(), 1);
    pool.parallel_for(matrix.rows, [&](int64_t r, int) { prune_row(matrix, statistics, r); });
    return PassRow{"pruned", "", {}};
  }

 private:
  void prune_row(PassMatrix& matrix, const LinearStatistics& statistics, int64_t row) const {
    const float* values = matrix.values.data() + row * matrix.cols;
    uint8_t* kept = matrix.kept.data() + row * matrix.cols;
    std::vector<double> scores(static_cast<size_t>(matrix.cols));
    for (size_t c = 0; c < scores.size(); ++c)
      scores[c] = kept[c] ? std::fabs(static_cast<double>(values[c])) * std::sqrt(statistics.squares[c]) : -1;
    const int64_t group = of_ > 0 ? of_ : matrix.cols;
    const auto pruned = of_ > 0 ? of_ - keep_ : static_cast<int64_t>(sparsity_ * static_cast<double>(matrix.cols));
    std::vector<int32_t> order;
    for (int64_t begin = 0; begin < matrix.cols; begin += group)
      prune_lowest(scores, begin, group, pruned, order, kept);
  }

  double sparsity_;
  int64_t keep_, of_;  // of_ 0: no pattern
};

}  // namespace

Result<std::unique_ptr<Pass>> make_wanda_pass(const OptionValues& options) {
  const std::string& pattern = options.text("pattern");
  if (pattern.empty()) return std::unique_ptr<Pass>(std::make_unique<Wanda>(options.number("sparsity"), 0, 0));
  int64_t keep = 0, of = 0;
  const char* const end = pattern.data() + pattern.size();
  const auto first = std::from_chars(pattern.data(), end, keep);
  const bool colon = first.ec == std::errc() && first.ptr != end && *first.ptr == ':';
  const auto second = colon ? std::from_chars(first.ptr + 1, end, of) : first;
  if (!colon || second.ec != std::errc() || second.ptr != end || keep < 0 || of < 1 || of > 256 || keep > of)
    return Error::user(
        fmt::format("pattern '{}': must be N:M with N of at most M and M of 1 to 256, such as 2:4", pattern));
  return std::unique_ptr<Pass>(std::make_unique<Wanda>(0, keep, of));
}

}  // namespace millrace
