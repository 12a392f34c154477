// PyramidKV (Cai et al., 2024): attention spreads over the text in the first layers and gathers on few tokens in the
// last ones, so budgets fall from layer to layer while their average stays `budget`. Above the observation window,
// which every layer keeps, the last layer keeps 1 / beta of the average, the first one what makes up for it, and those
// between are on the line from one to the other. Each layer chooses by the votes of SnapKV, all of its heads together
// (in the paper every head chooses), again and again while the answer grows.
#include "kv/token_evictors/factories.h"
#include "kv/token_evictors/layer_budgets.h"
#include "kv/token_evictors/window_votes.h"

namespace millrace {
namespace {

class PyramidKv final : public TokenEvictor {
 public:
  PyramidKv(int64_t budget, int64_t window, int64_t kernel, int64_t beta)
      : budget_(budget), window_(window), reach_(kernel / 2), beta_(beta) {}
  int64_t budget() const override { return budget_; }
  bool by_layer() const override { return true; }
  int64_t budget_of(int64_t layer, int64_t layers) const override {
    const int64_t above = budget_ - window_;
    return window_ + on_line_of_average(above, above / beta_, layer, layers);
  }
  MassRule mass_rule() const override { return {.queries = window_}; }
  void drop(const StoredTokens& stored, int64_t excess, std::vector<int32_t>& slots) const override {
    drop_by_votes(stored, excess, window_, reach_, slots);
  }

 private:
  int64_t budget_, window_, reach_, beta_;
};

}  // namespace

Result<std::unique_ptr<const TokenEvictor>> make_pyramidkv(const OptionValues& options) {
  const int64_t budget = options.integer("budget");
  return std::unique_ptr<const TokenEvictor>(std::make_unique<PyramidKv>(
      budget, std::min(budget, options.integer("window")), options.integer("kernel"), options.integer("beta")));
}

}  // namespace millrace
