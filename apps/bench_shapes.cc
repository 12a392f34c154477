#include "bench_shapes.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>

#include "base/philox.h"
#include "kernels/activation.h"
#include "kernels/linear.h"
#include "models/model.h"

namespace millrace {
namespace {

constexpr int64_t kTimedTokens[] = {4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 96};
constexpr int64_t kTimedAlone[] = {2, 3, 4, 6, 8};  // tokens, each alone or together
constexpr double kWorthwhile = 1.03;                // gain of each alone: less may be noise
constexpr int64_t kMaxTimed = 96;
constexpr size_t kMinTimings = 7, kMatricesOfAShape = 48;

using ShapeKey = std::tuple<std::string_view, int64_t, int64_t>;
using Shapes = std::map<ShapeKey, std::vector<const Weight*>>;

void add_matrix(const Weight& weight, Shapes& shapes) {
  if (!weight.present() || !weight.kernel || weight.codebook) return;
  auto& all = shapes[{weight.format->name, weight.rows, weight.cols}];
  if (all.size() < kMatricesOfAShape) all.push_back(&weight);
}

Shapes shapes_of(const Model& model) {
  Shapes out;
  const auto add_mlp = [&](const MlpWeights& mlp) {
    for (const Weight* weight : {&mlp.gate, &mlp.up, &mlp.down}) add_matrix(*weight, out);
  };
  for (int64_t i = 0; i < model.spec().layer_count(); ++i) {
    const LayerWeights& layer = model.layer(i);
    for (const Weight* weight : {&layer.q, &layer.k, &layer.v, &layer.output}) add_matrix(*weight, out);
    add_mlp(layer.mlp);
    add_mlp(layer.shared);
    for (const MlpWeights& expert : layer.experts) add_mlp(expert);
  }
  add_matrix(model.head(), out);
  return out;
}

// Products of one shape.
class TimedShape {
 public:
  static Result<TimedShape> create(std::vector<const Weight*> weights, const KernelTable& kernels, ThreadPool& pool) {
    TimedShape out(std::move(weights), pool);
    const Weight& first = *out.weights_.front();
    const Activation kind = first.format->activation;
    MILLRACE_TRY(out.encoded_,
                 AlignedBuffer::allocate(kMaxTimed * activation_row_bytes(kind, first.cols), "calibration"));
    std::vector<float> x(static_cast<size_t>(first.cols));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(philox_uniform(1, 2, i) - 0.5);
    out.rows_ = encode_activations(kernels, pool, kind, x.data(), 0, kMaxTimed, first.cols, out.encoded_.data());
    out.y_.resize(static_cast<size_t>(kMaxTimed * first.rows));
    return out;
  }

  // The time of so many tokens by vectors together, over that of `way`; the median of rounds.
  double gain(int64_t tokens, const ShapeTable::Row& way, double seconds) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<double> gains;
    while (gains.size() < kMinTimings || since(start) < seconds) {
      const double other = time(tokens, way), vectors = time(tokens, {.tiles_from = ShapeTable::kNever});
      gains.push_back(vectors / other);
    }
    std::ranges::nth_element(gains, gains.begin() + std::ssize(gains) / 2);
    return gains[gains.size() / 2];
  }

  // The least measured number of tokens from which tiles are faster at every number.
  int64_t tiles_from(double seconds) {
    int64_t from = ShapeTable::kNever;
    if (weights_.front()->kernel->tiles_from == 0) return from;
    for (auto tokens = std::rbegin(kTimedTokens); tokens != std::rend(kTimedTokens); ++tokens) {
      if (gain(*tokens, {.tiles_from = 1}, seconds / static_cast<double>(std::size(kTimedTokens))) < 1) break;
      from = *tokens;
    }
    return from;
  }

  // The most measured tokens up to which each alone is faster at every number.
  int64_t gemv_to(double seconds) {
    int64_t to = 0;
    for (const int64_t tokens : kTimedAlone) {
      const ShapeTable::Row alone{.tiles_from = ShapeTable::kNever, .gemv_to = tokens};
      if (gain(tokens, alone, seconds / static_cast<double>(std::size(kTimedAlone))) < kWorthwhile) break;
      to = tokens;
    }
    return to;
  }

  ShapeTable::Row row(double seconds) {
    const Weight& first = *weights_.front();
    return {first.format, first.rows, first.cols, tiles_from(seconds / 2), gemv_to(seconds / 2)};
  }

 private:
  TimedShape(std::vector<const Weight*> weights, ThreadPool& pool) : weights_(std::move(weights)), pool_(&pool) {}

  static double since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  double time(int64_t tokens, ShapeTable::Row way) {
    const Weight& weight = *weights_[next_++ % weights_.size()];
    way.format = weight.format;
    way.rows = weight.rows;
    way.cols = weight.cols;
    const ShapeTable forced({way});
    LinearPart part{.weight = &weight, .x = rows_, .y = y_.data(), .y_stride = weight.rows};
    part.x.tokens = tokens;
    const auto start = std::chrono::steady_clock::now();
    linear(*pool_, {&part, 1}, &forced);
    return since(start);
  }

  std::vector<const Weight*> weights_;
  ThreadPool* pool_;
  AlignedBuffer encoded_;
  ActivationRows rows_;
  std::vector<float> y_;
  size_t next_ = 0;
};

}  // namespace

Result<ShapeTable> measure_shapes(const LanguageModel& model, ThreadPool& pool, double seconds) {
  const Shapes shapes = shapes_of(*model.parts().model);
  const ThreadPool::Turn turn(pool);
  std::vector<ShapeTable::Row> rows;
  for (const auto& [key, weights] : shapes) {
    MILLRACE_TRY(TimedShape timed, TimedShape::create(weights, model.parts().kernels, pool));
    rows.push_back(timed.row(seconds / static_cast<double>(shapes.size())));
  }
  return ShapeTable(std::move(rows));
}

}  // namespace millrace
