// The cost model of the same machine with another KV format: keys are read and moved in `ratio` times the bytes.
#include <cmath>

#include "schedule/cost_model.h"

namespace millrace {
namespace {

class ScaledKvCost final : public CostModel {
 public:
  ScaledKvCost(std::unique_ptr<CostModel> cost, double ratio) : cost_(std::move(cost)), ratio_(ratio) {}

  double step_seconds(const StepShape& shape) const override {
    StepShape scaled = shape;
    scaled.keys = tokens(shape.keys);
    return cost_->step_seconds(scaled);
  }
  double swap_seconds(int64_t count) const override { return cost_->swap_seconds(tokens(count)); }
  double load_seconds(int64_t count) const override { return cost_->load_seconds(tokens(count)); }

 private:
  int64_t tokens(int64_t count) const { return std::llround(static_cast<double>(count) * ratio_); }

  std::unique_ptr<CostModel> cost_;
  double ratio_;
};

}  // namespace

std::unique_ptr<CostModel> make_scaled_kv_cost(std::unique_ptr<CostModel> cost, double ratio) {
  return std::make_unique<ScaledKvCost>(std::move(cost), ratio);
}

}  // namespace millrace
