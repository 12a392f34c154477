#include "compress/rounding/column_rounding.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "compress/matrix_parts.h"
#include "compress/rounding/level_grid.h"
#include "compress/rounding/level_scales.h"

namespace millrace {
namespace {

constexpr int64_t kTileRows = 8;  // that one thread rounds together
constexpr int64_t kChunk = 512;   // columns that errors are carried to at a time
constexpr int64_t kUnorderedStep = 64;
constexpr int kTries = 8;  // with ten times the damping each

// Rounds rows of one matrix.
class TileRounder {
 public:
  TileRounder(PassMatrix& matrix, const TriangleFactor& factor, const std::vector<int32_t>& order,
              const RoundingOptions& options, const std::vector<uint8_t>& exact, int64_t rows)
      : matrix_(matrix),
        factor_(factor),
        order_(order),
        options_(options),
        exact_(exact),
        grid_(*matrix.format),
        search_(*matrix.format),
        step_(options.by_activation ? kUnorderedStep : matrix.format->block_values),
        carried_(static_cast<size_t>(rows * matrix.cols)),
        errors_(static_cast<size_t>(rows * step_)),
        target_(static_cast<size_t>(matrix.format->block_values)),
        weights_(target_.size()),
        free_(target_.size()) {}

  void run(int64_t first, int64_t rows) {
    first_ = first;
    if (options_.by_activation) {
      weigh_columns();
      for (int64_t r = 0; r < rows; ++r) choose_all_scales(r);
    }
    for (int64_t begin = 0; begin < matrix_.cols; begin += step_) {
      const int64_t end = std::min(matrix_.cols, begin + step_);
      for (int64_t r = 0; r < rows; ++r) {
        if (!options_.by_activation) choose_scales(r, begin);
        round_columns(r, begin, end);
      }
      carry(rows, begin, end);
    }
  }

 private:
  float* values(int64_t r) const { return matrix_.values.data() + (first_ + r) * matrix_.cols; }
  double* carried(int64_t r) { return carried_.data() + r * matrix_.cols; }
  bool exact(int64_t r, int64_t col) const {
    return !exact_.empty() && exact_[static_cast<size_t>((first_ + r) * matrix_.cols + col)];
  }
  uint8_t* block(int64_t r, int64_t col) {
    const Format& format = *matrix_.format;
    return matrix_.encoded.data() + (first_ + r) * format.row_bytes(matrix_.cols) +
           col / format.block_values * format.block_bytes;
  }
  void choose_block(int64_t r, int64_t begin) {
    grid_.choose(target_.data(), weights_.data(), options_.clips, options_.search ? &search_ : nullptr,
                 block(r, begin));
  }

  // Scales for the weights of a block as the errors so far have moved them, before the block adds its own.
  void choose_scales(int64_t r, int64_t begin) {
    const int64_t size = matrix_.format->block_values;
    std::copy_n(carried(r) + begin, size, free_.begin());
    for (int64_t c = 0; c < size; ++c) {
      const double* line = factor_.row(begin + c);
      const double weight = values(r)[begin + c];
      const bool pruned = matrix_.pruned(first_ + r, begin + c), apart = exact(r, begin + c);
      const double moved = pruned ? 0 : weight + free_[static_cast<size_t>(c)] / line[0];
      target_[static_cast<size_t>(c)] = apart ? 0.0f : static_cast<float>(moved);
      weights_[static_cast<size_t>(c)] = apart ? 0 : line[0] * line[0];
      for (int64_t k = c + 1; k < size; ++k) free_[static_cast<size_t>(k)] += line[k - c] * (weight - moved);
    }
    choose_block(r, begin);
  }

  // Scales for the weights as they are: columns of a block are then rounded at different times.
  void choose_all_scales(int64_t r) {
    const int64_t size = matrix_.format->block_values;
    for (int64_t begin = 0; begin < matrix_.cols; begin += size) {
      for (int64_t c = 0; c < size; ++c) {
        const bool apart = exact(r, begin + c);
        target_[static_cast<size_t>(c)] = apart || matrix_.pruned(first_ + r, begin + c) ? 0 : values(r)[begin + c];
        weights_[static_cast<size_t>(c)] = apart             ? 0
                                           : options_.search ? column_weight_[static_cast<size_t>(begin + c)]
                                                             : 1;
      }
      choose_block(r, begin);
    }
  }

  void weigh_columns() {
    column_weight_.resize(static_cast<size_t>(matrix_.cols));
    for (int64_t i = 0; i < matrix_.cols; ++i)
      column_weight_[static_cast<size_t>(order_[static_cast<size_t>(i)])] = factor_.diagonal(i) * factor_.diagonal(i);
  }

  void round_columns(int64_t r, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t col = order_[static_cast<size_t>(i)];
      const double* line = factor_.row(i);
      uint8_t* const to = block(r, col);
      const auto place = static_cast<int>(col % matrix_.format->block_values);
      if (options_.by_activation) grid_.read(to, place);
      const double weight = values(r)[col], target = weight + carried(r)[i] / line[0];
      const bool pruned = matrix_.pruned(first_ + r, col), apart = exact(r, col);
      const int level = grid_.nearest(place, pruned || apart ? 0 : target);
      matrix_.format->set_level(to, place, level);
      if (apart) values(r)[col] = pruned ? 0.0f : static_cast<float>(target);
      const double error = weight - (apart ? values(r)[col] : grid_.at(place, level));
      errors_[static_cast<size_t>(r * step_ + i - begin)] = error;
      for (int64_t k = i + 1; k < end; ++k) carried(r)[k] += line[k - i] * error;
    }
  }

  // The errors of columns [begin, end), to all later ones.
  void carry(int64_t rows, int64_t begin, int64_t end) {
    for (int64_t from = end; from < matrix_.cols; from += kChunk) {
      const int64_t count = std::min(kChunk, matrix_.cols - from);
      for (int64_t r = 0; r < rows; ++r) {
        double* to = carried(r) + from;
        for (int64_t i = begin; i < end; ++i) {
          const double* line = factor_.row(i) + (from - i);
          const double error = errors_[static_cast<size_t>(r * step_ + i - begin)];
          for (int64_t k = 0; k < count; ++k) to[k] += line[k] * error;
        }
      }
    }
  }

  PassMatrix& matrix_;
  const TriangleFactor& factor_;
  const std::vector<int32_t>& order_;
  const RoundingOptions& options_;
  const std::vector<uint8_t>& exact_;
  LevelGrid grid_;
  ScaleSearch search_;
  int64_t step_;
  int64_t first_ = 0;
  std::vector<double> carried_;  // [rows, cols], by place in the order
  std::vector<double> errors_;   // [rows, step]
  std::vector<float> target_;    // of one block
  std::vector<double> weights_, free_;
  std::vector<double> column_weight_;
};

bool same_change(const InputChange& a, const InputChange& b) {
  return a.scale == b.scale && a.hadamard == b.hadamard && a.order == b.order;
}

std::string formats_with_levels() {
  std::string out;
  for (const Format* format : formats().members())
    if (find_scale_layout(*format)) out += (out.empty() ? "" : ", ") + std::string(format->name);
  return out;
}

}  // namespace

bool ColumnFactor::prepare(const PassMatrix& matrix, const LinearStatistics& statistics, double damp,
                           bool by_activation, ThreadPool& pool) {
  const InputChange& change = matrix.parts.input;
  const bool same = ready_ && id_ == statistics.id && same_change(change_, change);
  if (!same && !change.empty()) changed_ = changed_moments(statistics.moments, change);
  moments_ = change.empty() ? &statistics.moments : &changed_;
  if (same) return true;
  ready_ = false;
  id_ = statistics.id;
  change_ = change;
  const SecondMoments& moments = *moments_;
  order_.resize(static_cast<size_t>(moments.columns()));
  std::iota(order_.begin(), order_.end(), 0);
  if (by_activation)
    std::ranges::sort(order_, [&](int32_t a, int32_t b) {
      const double x = moments.at(a, a), y = moments.at(b, b);
      return x != y ? x > y : a < b;
    });
  const double mean = moments.diagonal_mean();
  if (!(mean > 0) || !(mean < 1e300)) return false;
  damping_ = damp;
  for (int i = 0; i < kTries && !ready_; ++i) {
    if (i > 0) damping_ = std::max(damping_ * 10, 1e-6);
    ready_ = factor_.factor(moments, order_, damping_ * mean, pool);
  }
  return ready_;
}

void round_columns(PassMatrix& matrix, const TriangleFactor& factor, const std::vector<int32_t>& order,
                   const RoundingOptions& options, const std::vector<uint8_t>& exact, ThreadPool& pool) {
  matrix.encoded.resize(static_cast<size_t>(matrix.rows * matrix.format->row_bytes(matrix.cols)));
  const int64_t tiles = (matrix.rows + kTileRows - 1) / kTileRows;
  pool.parallel_for(tiles, [&](int64_t tile, int) {
    const int64_t first = tile * kTileRows, rows = std::min(kTileRows, matrix.rows - first);
    TileRounder(matrix, factor, order, options, exact, rows).run(first, rows);
  });
}

Result<const Format*> level_format(const std::string& name) {
  const Format* format = find_format(name);
  if (format && find_scale_layout(*format)) return format;
  return Error::user(
      fmt::format("format '{}': is not a format of levels; choose one of {}", name, formats_with_levels()));
}

Result<bool> fit_searches(const std::string& fit) {
  if (fit != "plain" && fit != "search") return Error::user(fmt::format("fit '{}': must be plain or search", fit));
  return fit == "search";
}

std::string why_without_levels(const PassMatrix& matrix) {
  if (!find_scale_layout(*matrix.format)) return fmt::format("its format is {}", matrix.format->name);
  return matrix.parts.input.shift.empty() ? "" : "its inputs are shifted, and their moments not measured";
}

}  // namespace millrace
