#include "compress/pruners/prune_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace millrace {
namespace {

Result<PrunePattern> parse_groups(const std::string& text) {
  PrunePattern out;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, out.keep);
  const bool colon = first.ec == std::errc() && first.ptr != end && *first.ptr == ':';
  const auto second = colon ? std::from_chars(first.ptr + 1, end, out.of) : first;
  if (!colon || second.ec != std::errc() || second.ptr != end || out.keep < 1 || out.of < 1 || out.of > 256 ||
      out.keep > out.of)
    return Error::user(fmt::format("pattern '{}': must be N:M with N of 1 to M and M of 1 to 256, such as 2:4", text));
  return out;
}

// Of weights that an earlier pass pruned: lower than all others.
void mark_pruned(const uint8_t* kept, int64_t size, double* scores) {
  for (int64_t i = 0; i < size; ++i) {
    if (std::isnan(scores[i])) scores[i] = 0;
    if (!kept[i]) scores[i] = -INFINITY;
  }
}

}  // namespace

Result<PrunePattern> read_pattern(const OptionValues& options) {
  const std::string& groups = options.text("pattern");
  if (!groups.empty()) return parse_groups(groups);
  return PrunePattern{.sparsity = options.number("sparsity")};
}

Result<bool> read_matrix_scope(const OptionValues& options) {
  const std::string& scope = options.text("scope");
  if (scope != "matrix" && scope != "row") return Error::user(fmt::format("scope '{}': must be matrix or row", scope));
  return scope == "matrix";
}

PassRow left_alone(const PassMatrix& matrix, const PrunePattern& pattern) {
  if (matrix.id.layer < 0) return {"left", "the paper prunes the layers' matrices only", {}};
  if (pattern.grouped() && matrix.cols % pattern.of != 0)
    return {"left", fmt::format("{} columns are not a multiple of {}", matrix.cols, pattern.of), {}};
  return {};
}

PassPreview preview_pruned(PassMatrix& matrix, const PrunePattern& pattern) {
  if (PassRow left = left_alone(matrix, pattern); !left.action.empty()) return {"left", std::move(left.why), false};
  matrix.kept.assign(1, 0);  // later passes ask whether there is any
  return {"pruned", "", false};
}

void prune_lowest(const double* scores, int64_t size, int64_t count, std::vector<double>& sorted, uint8_t* kept) {
  if (count == 0) return;
  sorted.assign(scores, scores + size);
  const auto last = sorted.begin() + count - 1;  // the highest score that is pruned
  std::nth_element(sorted.begin(), last, sorted.end());
  const double limit = *last;
  int64_t equal = count - std::count_if(scores, scores + size, [&](double score) { return score < limit; });
  for (int64_t i = 0; i < size; ++i)
    if (scores[i] < limit || (scores[i] == limit && equal-- > 0)) kept[i] = 0;
}

void prune_by_scores(PassMatrix& matrix, const PrunePattern& pattern, bool whole_matrix, const RowScores& scores,
                     ThreadPool& pool) {
  const int64_t cols = matrix.cols;
  matrix.kept.resize(matrix.values.size(), 1);
  if (whole_matrix) {
    std::vector<double> all(matrix.values.size()), sorted;
    pool.parallel_for(matrix.rows, [&](int64_t r, int) {
      scores(r, &all[static_cast<size_t>(r * cols)]);
      mark_pruned(&matrix.kept[static_cast<size_t>(r * cols)], cols, &all[static_cast<size_t>(r * cols)]);
    });
    return prune_lowest(all.data(), std::ssize(all), pattern.pruned(std::ssize(all)), sorted, matrix.kept.data());
  }
  pool.parallel_for(matrix.rows, [&](int64_t r, int) {
    std::vector<double> row(static_cast<size_t>(cols)), sorted;
    uint8_t* kept = &matrix.kept[static_cast<size_t>(r * cols)];
    scores(r, row.data());
    mark_pruned(kept, cols, row.data());
    const int64_t group = pattern.group(cols), count = pattern.pruned(group);
    for (int64_t begin = 0; begin < cols; begin += group)
      prune_lowest(row.data() + begin, group, count, sorted, kept + begin);
  });
}

int64_t prune_working_bytes(int64_t rows, int64_t cols, bool whole_matrix) {
  return rows * cols * (whole_matrix ? 1 + 2 * static_cast<int64_t>(sizeof(double)) : 1);
}

}  // namespace millrace
