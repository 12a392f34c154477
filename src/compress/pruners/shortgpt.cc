// ShortGPT (Men et al., 2024, "ShortGPT: Layers in Large Language Models are More Redundant Than You Expect"): leaves
// out the layers of least Block Influence,
//
//   BI_i = 1 - mean over tokens t of (X_i,t . X_i+1,t) / (|X_i,t| |X_i+1,t|)
//
// with the residual stream X_i before layer i, over the calibration text: a layer that hardly turns it does little. Of
// equal ones the first goes. The output is an ordinary model with fewer layers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compress/factories.h"
#include "compress/plan_edits.h"
#include "compress/structural_pass.h"

namespace millrace {
namespace {

class InfluenceMeter final : public ForwardObserver {
 public:
  InfluenceMeter(int64_t layers, ThreadPool& pool) : sums_(static_cast<size_t>(layers)), pool_(pool) {}

  void residual(int64_t layer, const float* rows, int64_t tokens, int64_t width) override {
    if (layer > 0) add(static_cast<size_t>(layer - 1), rows, tokens, width);
    if (layer == 0) tokens_ += tokens;
    before_.assign(rows, rows + tokens * width);
  }

  std::vector<double> influences() const {
    std::vector<double> out;
    for (double sum : sums_) out.push_back(1 - sum / static_cast<double>(tokens_));
    return out;
  }

 private:
  void add(size_t layer, const float* rows, int64_t tokens, int64_t width) {
    std::vector<double> cosines(static_cast<size_t>(tokens));
    pool_.parallel_for(tokens, [&](int64_t t, int) {
      const float *a = &before_[static_cast<size_t>(t * width)], *b = rows + t * width;
      double product = 0, left = 0, right = 0;
      for (int64_t i = 0; i < width; ++i) {
        product += static_cast<double>(a[i]) * b[i];
        left += static_cast<double>(a[i]) * a[i];
        right += static_cast<double>(b[i]) * b[i];
      }
      const double size = std::sqrt(left) * std::sqrt(right);
      cosines[static_cast<size_t>(t)] = size > 0 ? product / size : 0;
    });
    for (double cosine : cosines) sums_[layer] += cosine;
  }

  std::vector<double> sums_;  // of the cosines, by layer
  int64_t tokens_ = 0;
  std::vector<float> before_;  // the residual stream before the layer that runs
  ThreadPool& pool_;
};

class ShortGpt final : public StructuralPass {
 public:
  explicit ShortGpt(int64_t drop) : drop_(drop) {}

  Result<void> reshape(StructuralWork& work) override {
    const int64_t layers = work.spec.layer_count();
    if (drop_ >= layers)
      return Error::user(fmt::format("--pass shortgpt: drop is {}, but the model has {} layers", drop_, layers));
    const int64_t bytes = work.calibration->context() * work.spec.width * 4;
    MILLRACE_TRY(const MemoryHold hold, MemoryHold::take(work.accounts, "residual stream", bytes, "raise --memory"));
    InfluenceMeter meter(layers, work.pool);
    MILLRACE_TRY_VOID(work.calibration->run(meter, {.to = layers}, true, [] { return Result<void>(); }));
    const std::vector<double> influences = meter.influences();
    std::vector<int64_t> order(static_cast<size_t>(layers));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](int64_t layer) { return influences[static_cast<size_t>(layer)]; });
    std::vector<int64_t> kept(order.begin() + drop_, order.end());
    std::ranges::sort(kept);
    for (int64_t i = 0; i < layers; ++i)
      work.report.push_back(
          {fmt::format("blk.{}", i), PassRow{std::ranges::binary_search(kept, i) ? "kept" : "dropped",
                                             "",
                                             {{"block_influence", influences[static_cast<size_t>(i)]}}}});
    return keep_layers(work.plan, work.spec, work.architecture, kept);
  }

 private:
  int64_t drop_;  // layers
};

}  // namespace

Result<std::unique_ptr<Pass>> make_shortgpt_pass(const OptionValues& options) {
  return std::unique_ptr<Pass>(std::make_unique<ShortGpt>(options.integer("drop")));
}

}  // namespace millrace
