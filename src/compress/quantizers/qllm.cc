// QLLM (Liu et al., 2023, "QLLM: Accurate and Efficient Low-Bitwidth Quantization for Large Language Models"), the part
// without training: outlier channels are taken apart before inputs are rounded, and as many other channels are put
// together, so that the matrix keeps its size.
//
//   disassembly: an input x_c of magnitude M_c > t becomes T = ceil(M_c / t) inputs x_c / T, all with its weights
//   assembly:    a channel a leaves, and a similar one b takes its weights over: w_b + beta w_a, x_a being near beta
//   x_b
//
// Half of the channels that are no outliers may leave, each for the one of the other half with which its outputs change
// least on the calibration text: by |w_a|^2 sum (x_a - beta x_b)^2, beta the one of least squares. (The paper gives the
// pair the mean of both inputs; here a matrix multiplies columns of its input, in any order and several times.) The
// threshold t is the one of `steps` fractions of the largest input whose rounded outputs are nearest to the original
// ones on sampled rows; none of which nothing is taken apart is one of them. The paper then trains low-rank weights
// against the rest of the error; --pass lqer adds such a pair without training.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "compress/factories.h"
#include "compress/output/preview.h"
#include "compress/pass_options.h"
#include "kernels/input_rounding.h"
#include "models/blocks/changed_products.h"

namespace millrace {
namespace {

constexpr int64_t kTrialRows = 32;  // of the matrix, evenly spaced

// A channel that may leave, and what takes its place.
struct Leaving {
  int32_t channel = 0, stays = 0;
  double beta = 0, cost = 0;
};

struct Reassembly {
  InputChange change;  // empty but for the rounding: every channel stays as it is
  std::vector<Leaving> merged;
  int64_t taken_apart = 0;
};

class Channels {
 public:
  Channels(const PassMatrix& matrix, const LinearStatistics& statistics, const InputFormat& inputs)
      : matrix_(matrix), statistics_(statistics), inputs_(inputs), norms_(static_cast<size_t>(matrix.cols)) {
    for (int64_t i = 0; i < std::ssize(matrix.values); ++i)
      norms_[static_cast<size_t>(i % matrix.cols)] +=
          static_cast<double>(matrix.values[static_cast<size_t>(i)]) * matrix.values[static_cast<size_t>(i)];
    for (int64_t c = 0; c < matrix.cols; ++c) widest_ = std::max(widest_, statistics.largest(static_cast<size_t>(c)));
    const int64_t step = (matrix.rows + kTrialRows - 1) / kTrialRows;
    for (int64_t r = 0; r < matrix.rows; r += step) trial_rows_.push_back(r);
  }

  float widest() const { return widest_; }

  // False: more channels would have to leave than can, or the moments are not finite.
  bool reassemble(float threshold, Reassembly& out) const {
    const int64_t cols = matrix_.cols;
    out = {};
    out.change.rounding = inputs_.rounding(cols);
    std::vector<int32_t> extra, others;  // copies of outliers; channels that are none
    std::vector<float> scale(static_cast<size_t>(cols), 1);
    for (int32_t c = 0; c < cols; ++c) {
      const float parts = std::ceil(statistics_.largest(static_cast<size_t>(c)) / threshold);
      if (!(parts > 1)) {
        others.push_back(c);
        continue;
      }
      ++out.taken_apart;
      scale[static_cast<size_t>(c)] = 1 / parts;
      if (std::ssize(extra) + parts > static_cast<float>(cols)) return false;
      extra.insert(extra.end(), static_cast<size_t>(parts) - 1, c);
    }
    if (extra.empty()) return true;
    if (std::ssize(extra) > std::ssize(others) / 2) return false;
    out.merged = choose_leaving(others, extra.size());
    if (out.merged.size() < extra.size()) return false;
    out.change.scale = std::move(scale);
    out.change.order.resize(static_cast<size_t>(cols));
    std::iota(out.change.order.begin(), out.change.order.end(), 0);
    for (size_t i = 0; i < extra.size(); ++i) out.change.order[static_cast<size_t>(out.merged[i].channel)] = extra[i];
    return true;
  }

  void store_row(const Reassembly& how, float* row) const {
    for (const Leaving& one : how.merged) row[one.stays] += static_cast<float>(one.beta * row[one.channel]);
    for (const Leaving& one : how.merged) row[one.channel] = row[how.change.order[static_cast<size_t>(one.channel)]];
  }

  // The squared change of some outputs on the sampled rows, with weights and inputs rounded.
  double error(const Reassembly& how, ThreadPool& pool) const {
    const int64_t cols = matrix_.cols, samples = std::ssize(statistics_.samples) / cols;
    std::vector<float> inputs(statistics_.samples.size());
    pool.parallel_for(samples, [&](int64_t i, int) {
      std::vector<float> scratch(static_cast<size_t>(cols));
      change_input(how.change, statistics_.samples.data() + i * cols, cols, scratch.data(), inputs.data() + i * cols);
      round_inputs(how.change.rounding, inputs.data() + i * cols);
    });
    std::vector<double> errors(trial_rows_.size());
    pool.parallel_for(std::ssize(errors), [&](int64_t i, int) {
      const float* plain = matrix_.values.data() + trial_rows_[static_cast<size_t>(i)] * cols;
      std::vector<float> stored(plain, plain + cols);
      store_row(how, stored.data());
      std::vector<uint8_t> encoded(static_cast<size_t>(matrix_.format->row_bytes(cols)));
      matrix_.format->encode(stored.data(), encoded.data(), cols);
      matrix_.format->decode(encoded.data(), stored.data(), cols);
      for (int64_t s = 0; s < samples; ++s) {
        const float *changed = inputs.data() + s * cols, *x = statistics_.samples.data() + s * cols;
        double sum = 0;
        for (int64_t c = 0; c < cols; ++c)
          sum +=
              static_cast<double>(stored[static_cast<size_t>(c)]) * changed[c] - static_cast<double>(plain[c]) * x[c];
        errors[static_cast<size_t>(i)] += sum * sum;
      }
    });
    return std::accumulate(errors.begin(), errors.end(), 0.0);
  }

 private:
  double moment(int64_t i, int64_t j) const { return statistics_.moments.at(std::min(i, j), std::max(i, j)); }

  // Of every second channel, the `count` that cost least.
  std::vector<Leaving> choose_leaving(const std::vector<int32_t>& others, size_t count) const {
    std::vector<Leaving> out;
    for (size_t i = 0; i + 1 < others.size(); i += 2) {
      const int32_t a = others[i];
      Leaving best{.channel = a, .cost = INFINITY};
      for (size_t j = 1; j < others.size(); j += 2) {
        const int32_t b = others[j];
        const double own = moment(b, b), both = moment(a, b);
        const double beta = own > 0 ? both / own : 0;
        const double cost = norms_[static_cast<size_t>(a)] * std::max(0.0, moment(a, a) - beta * both);
        if (cost < best.cost) best = {a, b, beta, cost};
      }
      if (best.cost < INFINITY) out.push_back(best);
    }
    std::ranges::stable_sort(out, {}, &Leaving::cost);
    out.resize(std::min(out.size(), count));
    return out;
  }

  const PassMatrix& matrix_;
  const LinearStatistics& statistics_;
  const InputFormat& inputs_;
  std::vector<double> norms_;  // |w_c|^2
  std::vector<int64_t> trial_rows_;
  float widest_ = 0;
};

class Qllm final : public Pass {
 public:
  Qllm(int64_t steps, double threshold, InputFormat inputs, const Format* format)
      : steps_(steps), threshold_(threshold), inputs_(inputs), format_(format) {}

  uint32_t needs() const override { return kInputRanges | kInputSamples | kSecondMoments; }
  std::string format() const override { return std::string(format_->name); }
  bool orders_inputs() const override { return true; }
  int64_t working_bytes(int64_t /*rows*/, int64_t cols) const override {
    return cols * (LinearStatistics::kMaxSamples * 4 + 128);
  }

  Result<PassPreview> preview(PassMatrix& matrix) const override {
    if (std::string why = keeps_its_inputs(matrix); !why.empty()) return preview_left(std::move(why));
    matrix.parts.input.rounding = inputs_.rounding(matrix.cols);
    matrix.parts.input.scale.assign(static_cast<size_t>(matrix.cols), 1);
    preview_order(matrix);
    return PassPreview{"quantized", "", true};  // without scale and order, if no channel is taken apart
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (const std::string why = keeps_its_inputs(matrix); !why.empty()) return PassRow{"left", why, {}};
    const Channels channels(matrix, statistics, inputs_);
    const float widest = channels.widest();
    if (!(widest > 0) || !std::isfinite(widest)) return PassRow{"left", "its inputs are zero or not finite", {}};
    Reassembly chosen, one;
    double least = INFINITY;
    for (int64_t k = steps_; k >= 1; --k) {  // of equally good ones the largest
      const double part = threshold_ > 0 ? threshold_ : static_cast<double>(k) / static_cast<double>(steps_);
      if (!channels.reassemble(static_cast<float>(part * widest), one)) break;
      const double error = channels.error(one, pool);
      if (error < least) {
        least = error;
        chosen = one;
      }
      if (threshold_ > 0) break;
    }
    if (!(least < INFINITY)) return PassRow{"left", "too many of its inputs are above the threshold", {}};
    pool.parallel_for(matrix.rows,
                      [&](int64_t r, int) { channels.store_row(chosen, matrix.values.data() + r * matrix.cols); });
    matrix.parts.input = std::move(chosen.change);
    return PassRow{"quantized",
                   "",
                   {{"channels split", static_cast<double>(chosen.taken_apart)},
                    {"channels merged", static_cast<double>(chosen.merged.size())}}};
  }

 private:
  int64_t steps_;
  double threshold_;
  InputFormat inputs_;
  const Format* format_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_qllm_pass(const OptionValues& options) {
  MILLRACE_TRY(const InputFormat inputs, input_format(options));
  MILLRACE_TRY(const Format* format, stored_format(options));
  if (!format) return Error::user("format: is empty; give the number format of the weights, such as q4_0");
  return std::unique_ptr<Pass>(
      std::make_unique<Qllm>(options.integer("steps"), options.number("threshold"), inputs, format));
}

}  // namespace millrace
