// GPTQ (Frantar et al., 2022, "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers"): the
// columns of a matrix are rounded one after the other, and the columns that are left are moved so that they make up for
// the error so far, as the outputs on the calibration text see it: the error e of a row costs e^T H e, with the second
// moments H of the inputs. Levels are those of a stored block format, so that the output is an ordinary file.
//
// The paper updates all later weights from the Cholesky factor of H^-1. Here H = R R^T with R upper triangular, and
// e^T H e = sum of (R^T e)_i ^ 2: with the errors e_j = w_j - q_j of the earlier columns, column i rounds
//
//   w_i + carried_i / R_ii,   carried_i = sum over j < i of R_ji e_j
//
// which is the same in exact arithmetic and inverts nothing. Rows are independent; the sums of a row have a fixed
// order.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "compress/factories.h"
#include "compress/level_grid.h"
#include "compress/matrix_parts.h"
#include "compress/triangle_factor.h"

namespace millrace {
namespace {

constexpr int64_t kTileRows = 8;  // that one thread rounds together
constexpr int64_t kChunk = 512;   // columns that errors are carried to at a time
constexpr int64_t kUnorderedStep = 64;
constexpr int kTries = 8;  // with ten times the damping each

struct GptqOptions {
  const Format* format = nullptr;
  double damp = 0.01;
  bool by_activation = false;
  bool permuted = false;  // columns are stored in that order, and inputs are permuted at run time
  int clips = 0;
};

// Rounds rows of one matrix.
class TileRounder {
 public:
  TileRounder(PassMatrix& matrix, const TriangleFactor& factor, const std::vector<int32_t>& order,
              const GptqOptions& options, int64_t rows)
      : matrix_(matrix),
        factor_(factor),
        order_(order),
        options_(options),
        grid_(*matrix.format),
        step_(options.by_activation ? kUnorderedStep : matrix.format->block_values),
        carried_(static_cast<size_t>(rows * matrix.cols)),
        errors_(static_cast<size_t>(rows * step_)),
        target_(static_cast<size_t>(matrix.format->block_values)),
        weights_(target_.size()),
        free_(target_.size()) {}

  void run(int64_t first, int64_t rows) {
    first_ = first;
    for (int64_t r = 0; options_.by_activation && r < rows; ++r) choose_all_scales(r);
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
  const float* values(int64_t r) const { return matrix_.values.data() + (first_ + r) * matrix_.cols; }
  double* carried(int64_t r) { return carried_.data() + r * matrix_.cols; }
  uint8_t* block(int64_t r, int64_t col) {
    const Format& format = *matrix_.format;
    return matrix_.encoded.data() + (first_ + r) * format.row_bytes(matrix_.cols) +
           col / format.block_values * format.block_bytes;
  }

  // Scales for the weights of a block as the errors so far have moved them, before the block adds its own.
  void choose_scales(int64_t r, int64_t begin) {
    const int64_t size = matrix_.format->block_values;
    std::copy_n(carried(r) + begin, size, free_.begin());
    for (int64_t c = 0; c < size; ++c) {
      const double* line = factor_.row(begin + c);
      const double weight = values(r)[begin + c];
      const bool pruned = matrix_.pruned(first_ + r, begin + c);
      const double moved = pruned ? 0 : weight + free_[static_cast<size_t>(c)] / line[0];
      target_[static_cast<size_t>(c)] = static_cast<float>(moved);
      weights_[static_cast<size_t>(c)] = line[0] * line[0];
      for (int64_t k = c + 1; k < size; ++k) free_[static_cast<size_t>(k)] += line[k - c] * (weight - moved);
    }
    grid_.choose(target_.data(), weights_.data(), options_.clips, block(r, begin));
  }

  // Scales for the weights as they are: columns of a block are then rounded at different times.
  void choose_all_scales(int64_t r) {
    const int64_t size = matrix_.format->block_values;
    std::fill(weights_.begin(), weights_.end(), 1.0);
    for (int64_t begin = 0; begin < matrix_.cols; begin += size) {
      for (int64_t c = 0; c < size; ++c)
        target_[static_cast<size_t>(c)] = matrix_.pruned(first_ + r, begin + c) ? 0 : values(r)[begin + c];
      grid_.choose(target_.data(), weights_.data(), options_.clips, block(r, begin));
    }
  }

  void round_columns(int64_t r, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t col = order_[static_cast<size_t>(i)];
      const double* line = factor_.row(i);
      uint8_t* const to = block(r, col);
      const auto place = static_cast<int>(col % matrix_.format->block_values);
      if (options_.by_activation) grid_.read(to, place);
      const double weight = values(r)[col], target = weight + carried(r)[i] / line[0];
      const int level = grid_.nearest(place, matrix_.pruned(first_ + r, col) ? 0 : target);
      matrix_.format->set_level(to, place, level);
      const double error = weight - grid_.at(place, level);
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
  const GptqOptions& options_;
  LevelGrid grid_;
  int64_t step_;
  int64_t first_ = 0;
  std::vector<double> carried_;  // [rows, cols], by place in the order
  std::vector<double> errors_;   // [rows, step]
  std::vector<float> target_;    // of one block
  std::vector<double> weights_, free_;
};

class Gptq final : public Pass {
 public:
  explicit Gptq(const GptqOptions& options) : options_(options) {}

  uint32_t needs() const override { return kSecondMoments; }
  std::string format() const override { return std::string(options_.format->name); }
  int64_t working_bytes(int64_t /*rows*/, int64_t cols) const override { return TriangleFactor::bytes(cols); }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (matrix.format->levels == 0) return PassRow{"left", fmt::format("its format is {}", matrix.format->name), {}};
    if (!prepare(statistics, pool)) return PassRow{"left", "its inputs are all zero or not finite", {}};
    GptqOptions options = options_;
    const bool permuted = options.permuted && matrix.no_parts.empty();
    options.by_activation |= options.permuted && !permuted;
    if (permuted) permute(matrix, pool);
    matrix.encoded.resize(static_cast<size_t>(matrix.rows * matrix.format->row_bytes(matrix.cols)));
    const int64_t tiles = (matrix.rows + kTileRows - 1) / kTileRows;
    pool.parallel_for(tiles, [&](int64_t tile, int) {
      const int64_t first = tile * kTileRows, rows = std::min(kTileRows, matrix.rows - first);
      TileRounder(matrix, factor_, permuted ? stored_ : order_, options, rows).run(first, rows);
    });
    return PassRow{"quantized", "", {{"damping", damping_}}};
  }

 private:
  // The columns of a block are then those of similar inputs.
  void permute(PassMatrix& matrix, ThreadPool& pool) const {
    matrix.parts.input.order = order_;
    const InputChange& change = matrix.parts.input;
    pool.parallel_for(matrix.rows, [&](int64_t r, int) {
      std::vector<float> scratch;
      store_row(change, matrix.values.data() + r * matrix.cols, matrix.cols, scratch);
      if (matrix.kept.empty()) return;
      const std::vector<uint8_t> kept(matrix.kept.begin() + r * matrix.cols,
                                      matrix.kept.begin() + (r + 1) * matrix.cols);
      for (int64_t c = 0; c < matrix.cols; ++c)
        matrix.kept[static_cast<size_t>(r * matrix.cols + c)] =
            kept[static_cast<size_t>(order_[static_cast<size_t>(c)])];
    });
  }

  // The factor for these statistics; matrices that read the same rows share it.
  bool prepare(const LinearStatistics& statistics, ThreadPool& pool) {
    if (ready_ && id_ == statistics.id) return true;
    const SecondMoments& moments = statistics.moments;
    ready_ = false;
    id_ = statistics.id;
    order_.resize(static_cast<size_t>(moments.columns()));
    std::iota(order_.begin(), order_.end(), 0);
    stored_ = order_;
    if (options_.by_activation || options_.permuted)
      std::ranges::sort(order_, [&](int32_t a, int32_t b) {
        const double x = moments.at(a, a), y = moments.at(b, b);
        return x != y ? x > y : a < b;
      });
    const double mean = moments.diagonal_mean();
    if (!(mean > 0) || !(mean < 1e300)) return false;
    damping_ = options_.damp;
    for (int i = 0; i < kTries && !ready_; ++i) {
      if (i > 0) damping_ = std::max(damping_ * 10, 1e-6);
      ready_ = factor_.factor(moments, order_, damping_ * mean, pool);
    }
    return ready_;
  }

  GptqOptions options_;
  bool ready_ = false;
  LinearId id_;
  double damping_ = 0;
  std::vector<int32_t> order_;   // of the columns
  std::vector<int32_t> stored_;  // ... as they are
  TriangleFactor factor_;
};

std::string formats_with_levels() {
  std::string out;
  for (const Format* format : formats().members())
    if (format->levels > 0) out += (out.empty() ? "" : ", ") + std::string(format->name);
  return out;
}

}  // namespace

Result<std::unique_ptr<Pass>> make_gptq_pass(const OptionValues& values) {
  GptqOptions options;
  options.format = find_format(values.text("format"));
  if (!options.format || options.format->levels == 0)
    return Error::user(fmt::format("format '{}': is not a format of levels; choose one of {}", values.text("format"),
                                   formats_with_levels()));
  options.damp = values.number("damp");
  const std::string& order = values.text("order");
  if (order != "stored" && order != "activation")
    return Error::user(fmt::format("order '{}': must be stored or activation", order));
  options.permuted = values.boolean("permute");
  options.by_activation = order == "activation" && !options.permuted;
  if (options.permuted && order != "activation")
    return Error::user("permute: columns are stored in another order only with order=activation");
  options.clips = static_cast<int>(values.integer("clip"));
  return std::unique_ptr<Pass>(std::make_unique<Gptq>(options));
}

}  // namespace millrace
