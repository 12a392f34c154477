// ZipLM (Kurtic et al., 2023, "ZipLM: Inference-Aware Structured Pruning of Language Models"), of the inner columns of
// MLPs: of the down projection W with the inverse H^-1 of its inputs' second moments, the column j with the smallest
//
//   sum over rows r of W_rj^2 / [H^-1]_jj
//
// goes, the other columns move by -W_j [H^-1]_jk / [H^-1]_jj to make up for it, and H^-1 loses row and column j
// (optimal brain surgeon for whole columns); again, until as many are left as wanted. The rows of gate and up that made
// them go, too. The output is an ordinary model with narrower MLPs.
//
// How many stay is a fraction, or follows from a speed-up by a table of times measured on this machine: of a token's
// products with all matrices, by the width of the MLPs. The paper also removes heads, and chooses another width for
// each layer; a GGUF file has one for all.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

#include "compress/factories.h"
#include "compress/plan_edits.h"
#include "compress/pruners/column_pruner.h"
#include "compress/structural_pass.h"
#include "kernels/activation.h"
#include "kernels/linear.h"

namespace millrace {
namespace {

constexpr int64_t kWidthStep = 32;                  // widths are multiples: a row of blocks of every simple format
constexpr int64_t kMomentBytes = int64_t{1} << 30;  // of layers that are measured at a time
constexpr int kTimedRounds = 7;

// Removes columns of a matrix one after the other.
class ColumnSurgeon {
 public:
  ColumnSurgeon(const std::vector<float>& values, int64_t rows, int64_t cols, std::vector<double> inverse)
      : rows_(rows),
        cols_(cols),
        inverse_(std::move(inverse)),
        columns_(values.size()),
        left_(static_cast<size_t>(cols)) {
    std::iota(left_.begin(), left_.end(), 0);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        columns_[static_cast<size_t>(c * rows + r)] = values[static_cast<size_t>(r * cols + c)];
  }

  void remove(int64_t count, ThreadPool& pool) {
    std::vector<double> costs(left_.size());
    for (; count > 0; --count) {
      pool.parallel_for(std::ssize(left_),
                        [&](int64_t i, int) { costs[static_cast<size_t>(i)] = cost(left_[static_cast<size_t>(i)]); });
      const auto best = std::min_element(costs.begin(), costs.begin() + std::ssize(left_)) - costs.begin();
      const int64_t gone = left_[static_cast<size_t>(best)];
      left_.erase(left_.begin() + best);
      const double* pivot = line(gone);
      pool.parallel_for(std::ssize(left_), [&](int64_t i, int) {
        const int64_t k = left_[static_cast<size_t>(i)];
        double* to = line(k);
        const double factor = to[gone] / pivot[gone];
        for (int64_t r = 0; r < rows_; ++r) column(k)[r] -= factor * column(gone)[r];
        for (int64_t c = 0; c < cols_; ++c) to[c] -= factor * pivot[c];
      });
    }
  }

  const std::vector<int64_t>& left() const { return left_; }
  // [rows, left]
  std::vector<float> values() {
    std::vector<float> out;
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t c : left_) out.push_back(static_cast<float>(column(c)[r]));
    return out;
  }

 private:
  double* line(int64_t col) { return &inverse_[static_cast<size_t>(col * cols_)]; }
  double* column(int64_t col) { return &columns_[static_cast<size_t>(col * rows_)]; }
  double cost(int64_t col) {
    double sum = 0;
    for (int64_t r = 0; r < rows_; ++r) sum += column(col)[r] * column(col)[r];
    return sum / line(col)[col];
  }

  int64_t rows_, cols_;
  std::vector<double> inverse_;  // [cols, cols]
  std::vector<double> columns_;  // [cols, rows]
  std::vector<int64_t> left_;    // columns, ascending
};

// The shortest time of a token's product with a matrix of this size and format.
Result<double> seconds_of(const Format& format, int64_t rows, int64_t cols, StructuralWork& work) {
  Weight weight;
  weight.name.assign("timed");
  weight.format = &format;
  weight.rows = rows;
  weight.cols = cols;
  const std::vector<uint8_t> zeros(static_cast<size_t>(rows * format.row_bytes(cols)));
  weight.data = zeros.data();
  MILLRACE_TRY_VOID(pack_weight(weight, work.kernels, work.pool));
  MILLRACE_TRY(auto scratch, AlignedBuffer::allocate(activation_row_bytes(format.activation, cols), "timed product"));
  const std::vector<float> x(static_cast<size_t>(cols), 1.0f);
  std::vector<float> y(static_cast<size_t>(rows));
  const ActivationRows in =
      encode_activations(work.kernels, work.pool, format.activation, x.data(), cols, 1, cols, scratch.data());
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTimedRounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    linear(work.pool, weight, in, y.data(), rows);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

struct MlpTensors {
  OutputTensor* gate = nullptr;  // null: none
  OutputTensor* up = nullptr;
  OutputTensor* down = nullptr;
};

class ZipLm final : public StructuralPass {
 public:
  ZipLm(double keep, double speedup, double damp) : keep_(keep), speedup_(speedup), damp_(damp) {}

  Result<void> reshape(StructuralWork& work) override {
    const ArchSpec& spec = work.spec;
    const int64_t hidden = spec.hidden;
    if (std::ranges::any_of(spec.layers,
                            [&](const LayerSpec& one) { return one.moe || !one.mlp || one.hidden != hidden; }))
      return Error::unsupported("--pass ziplm: needs a dense MLP of the same width in every layer");
    if (spec.gated && !find_output(work.plan, "blk.0.ffn_gate.weight").ok())
      return Error::unsupported(
          fmt::format("--pass ziplm: {} stores gate and up of an MLP as one tensor, ffn_up, whose rows it cannot "
                      "remove; use another "
                      "pruner, such as wanda, or slicegpt",
                      spec.arch));
    if (hidden % kWidthStep != 0)
      return Error::unsupported(
          fmt::format("--pass ziplm: {} inner columns are not a multiple of {}", hidden, kWidthStep));
    const auto wanted = std::round(keep_ * static_cast<double>(hidden / kWidthStep));
    int64_t width = std::clamp<int64_t>(static_cast<int64_t>(wanted) * kWidthStep, kWidthStep, hidden);
    if (speedup_ > 0) {
      MILLRACE_TRY(width, width_of_speedup(work));
    }
    const int64_t layer_bytes = SecondMoments::bytes(hidden);
    const int64_t layers = std::clamp<int64_t>(kMomentBytes / layer_bytes, 1, spec.layer_count());
    const int64_t bytes = layers * layer_bytes + TriangleFactor::bytes(hidden) +
                          hidden * (hidden + 2 * spec.width) * 8 + spec.layer_count() * spec.width * width * 4;
    MILLRACE_TRY(const MemoryHold hold, MemoryHold::take(work.accounts, "columns of MLPs", bytes, "raise --memory"));
    for (int64_t first = 0; first < spec.layer_count(); first += layers)
      MILLRACE_TRY_VOID(prune_range(work, first, std::min(spec.layer_count(), first + layers), width));
    work.plan.writer.set_u32(work.architecture + ".feed_forward_length", static_cast<uint32_t>(width));
    return {};
  }

 private:
  Result<MlpTensors> tensors_of(StructuralWork& work, int64_t layer) const {
    MlpTensors out;
    const std::string prefix = fmt::format("blk.{}.", layer);
    MILLRACE_TRY(out.up, find_output(work.plan, prefix + "ffn_up.weight"));
    MILLRACE_TRY(out.down, find_output(work.plan, prefix + "ffn_down.weight"));
    if (work.spec.gated) {
      MILLRACE_TRY(out.gate, find_output(work.plan, prefix + "ffn_gate.weight"));
    }
    return out;
  }

  Result<void> prune_range(StructuralWork& work, int64_t first, int64_t end, int64_t width) const {
    const int64_t hidden = work.spec.hidden;
    StatisticsMap statistics;
    for (int64_t layer = first; layer < end; ++layer) {
      const LinearId id{static_cast<int32_t>(layer), LinearKind::down};
      LinearStatistics& one = statistics[id];
      one.id = id;
      one.moments = SecondMoments(hidden);
    }
    MILLRACE_TRY_VOID(work.calibration->measure(kSecondMoments, statistics, false, [](double) {}));
    for (auto& [id, measured] : statistics) MILLRACE_TRY_VOID(prune_layer(work, id.layer, measured, width));
    return {};
  }

  Result<void> prune_layer(StructuralWork& work, int64_t layer, const LinearStatistics& statistics,
                           int64_t width) const {
    MILLRACE_TRY(const MlpTensors mlp, tensors_of(work, layer));
    const int64_t rows = work.spec.width, hidden = work.spec.hidden;
    if (width == hidden) {
      work.report.push_back({fmt::format("blk.{}", layer), PassRow{"kept", "", {}}});
      return {};
    }
    if (width % mlp.down->format->block_values != 0)
      return Error::unsupported(
          fmt::format("tensor {}: {} columns are not whole blocks of {}; start from a file of floats", mlp.down->name,
                      width, mlp.down->format->name));
    DampedFactor factor;
    if (statistics.rows == 0 || !factor.prepare(statistics, damp_, work.pool))
      return Error::unsupported(fmt::format("blk.{}: the inputs of its MLP are all zero or not finite", layer));
    const std::vector<float> before = values_of(*mlp.down, work.pool);
    ColumnSurgeon surgeon(before, rows, hidden, full_inverse(factor.factor(), work.pool));
    surgeon.remove(hidden - width, work.pool);
    for (OutputTensor* tensor : {mlp.gate, mlp.up})
      if (tensor) MILLRACE_TRY_VOID(keep_rows(*tensor, surgeon.left(), work.pool));
    for (const char* name : {"ffn_gate.bias", "ffn_up.bias"})
      if (auto bias = find_output(work.plan, fmt::format("blk.{}.{}", layer, name)); bias.ok())
        MILLRACE_TRY_VOID(keep_rows(**bias, surgeon.left(), work.pool));
    work.report.push_back(
        {fmt::format("blk.{}", layer),
         PassRow{"narrowed",
                 "",
                 {{"columns", static_cast<double>(width)},
                  {"output_error", output_error(before, surgeon, statistics.moments, rows, work.pool)}}}});
    replace_values(*mlp.down, rows, width, surgeon.values());
    return {};
  }

  // The squared change of the outputs over the squared outputs, on the calibration text.
  static double output_error(const std::vector<float>& before, ColumnSurgeon& surgeon, const SecondMoments& moments,
                             int64_t rows, ThreadPool& pool) {
    const int64_t cols = moments.columns(), left = std::ssize(surgeon.left());
    const std::vector<float> values = surgeon.values();
    std::vector<double> changes(static_cast<size_t>(rows)), sizes(changes.size());
    pool.parallel_for(rows, [&](int64_t r, int) {
      std::vector<double> w(before.begin() + r * cols, before.begin() + (r + 1) * cols), e = w;
      for (int64_t i = 0; i < left; ++i)
        e[static_cast<size_t>(surgeon.left()[static_cast<size_t>(i)])] -= values[static_cast<size_t>(r * left + i)];
      const auto square = [&](const std::vector<double>& v) {
        double sum = 0;
        for (int64_t i = 0; i < cols; ++i) {
          double line = moments.at(i, i) * v[static_cast<size_t>(i)] / 2;
          for (int64_t j = i + 1; j < cols; ++j) line += moments.at(i, j) * v[static_cast<size_t>(j)];
          sum += 2 * v[static_cast<size_t>(i)] * line;
        }
        return sum;
      };
      changes[static_cast<size_t>(r)] = square(e);
      sizes[static_cast<size_t>(r)] = square(w);
    });
    const double size = std::accumulate(sizes.begin(), sizes.end(), 0.0);
    return size > 0 ? std::accumulate(changes.begin(), changes.end(), 0.0) / size : 0;
  }

  // The widest MLP with which a token's products take at most 1 / speedup of the time that they take now.
  Result<int64_t> width_of_speedup(StructuralWork& work) const {
    MILLRACE_TRY(const MlpTensors mlp, tensors_of(work, 0));
    const ArchSpec& spec = work.spec;
    double rest = 0;  // of all other matrices
    for (const OutputTensor& tensor : work.plan.tensors) {
      const bool head = tensor.name == "output.weight" || (tensor.name == "token_embd.weight" && !has_head(work.plan));
      if (tensor.dims.size() != 2 || tensor.name.find(".ffn_") != std::string::npos) continue;
      if (!head && !tensor.name.starts_with("blk.")) continue;
      MILLRACE_TRY(const double seconds, seconds_of(*tensor.format, tensor.dims[0], tensor.dims[1], work));
      rest += seconds;
    }
    double now = 0;
    for (int64_t width = spec.hidden; width > 0; width -= kWidthStep) {
      MILLRACE_TRY(double seconds, seconds_of(*mlp.up->format, width, spec.width, work));
      if (spec.gated) seconds *= 2;
      if (width % mlp.down->format->block_values != 0) continue;
      MILLRACE_TRY(const double down, seconds_of(*mlp.down->format, spec.width, width, work));
      const double total = rest + static_cast<double>(spec.layer_count()) * (seconds + down);
      if (width == spec.hidden) now = total;
      if (total * speedup_ > now && width > kWidthStep) continue;
      work.report.push_back({"model", PassRow{"timed",
                                              "",
                                              {{"us_before", now * 1e6},
                                               {"us_after", total * 1e6},
                                               {"us_without_mlps", rest * 1e6},
                                               {"columns", static_cast<double>(width)}}}});
      if (total * speedup_ > now)
        return Error::user(fmt::format(
            "--pass ziplm: speedup {} cannot be reached by narrower MLPs; the other matrices take {:.0f} % of the time",
            speedup_, 100 * rest / now));
      return width;
    }
    return spec.hidden;
  }

  static bool has_head(const ConversionPlan& plan) {
    return std::ranges::any_of(plan.tensors, [](const OutputTensor& tensor) { return tensor.name == "output.weight"; });
  }

  double keep_, speedup_, damp_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_ziplm_pass(const OptionValues& options) {
  if (options.given("keep") && options.given("speedup"))
    return Error::user("keep, speedup: give one of them; the other follows from it");
  return std::unique_ptr<Pass>(
      std::make_unique<ZipLm>(options.number("keep"), options.number("speedup"), options.number("damp")));
}

}  // namespace millrace
