// The cost model of the same machine with another KV format: tokens are moved in `ratio` times the bytes, and their
// keys read in `read_ratio` times as many.
#include <cmath>

#include "schedule/cost_model.h"

namespace millrace {
namespace {

class ScaledKvCost final : public CostModel {
 public:
  ScaledKvCost(std::unique_ptr<CostModel> cost, double ratio, double read_ratio)
      : cost_(std::move(cost)), ratio_(ratio), read_ratio_(read_ratio) {}

  double step_seconds(const StepShape& shape) const override {
    StepShape scaled = shape;
    scaled.keys = tokens(shape.keys, read_ratio_);
    return cost_->step_seconds(scaled);
  }
  double swap_seconds(int64_t count) const override { return cost_->swap_seconds(tokens(count, ratio_)); }
  double load_seconds(int64_t count) const override { return cost_->load_seconds(tokens(count, ratio_)); }

 private:
  static int64_t tokens(int64_t count, double ratio) { return std::llround(static_cast<double>(count) * ratio); }

  std::unique_ptr<CostModel> cost_;
  double ratio_, read_ratio_;
};

}  // namespace

std::unique_ptr<CostModel> make_scaled_kv_cost(std::unique_ptr<CostModel> cost, double ratio, double read_ratio) {
  return std::make_unique<ScaledKvCost>(std::move(cost), ratio, read_ratio);
}

}  // namespace millrace
