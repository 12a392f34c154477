// Diffuser (Feng et al., 2022): a sparse graph of blocks, a window, the first ones and random ones, along which values
// diffuse for several hops in every layer (attention/hop_values.h). So a token hears of keys that it does not see, by
// way of those that it sees, at a cost that grows with the hops and not with the length.
//
// The paper's sum of powers of A begins with the token's own value, and its models are trained with it. Here it begins
// with one hop, so that models that expect attention as it is get it first, and heads that share keys diffuse together.
#include "attention/diffusing_pattern.h"
#include "attention/patterns/factories.h"
#include "attention/patterns/random_graph.h"

namespace millrace {
namespace {

class Diffuser final : public DiffusingPattern {
 public:
  explicit Diffuser(const OptionValues& options)
      : graph_(options), hops_(options.integer("hops")), own_(static_cast<float>(options.number("alpha"))) {}
  void mark(const PatternPlace& at, int64_t query_block, BlockMarks& marks) const override {
    graph_.mark(at, query_block, marks);
  }
  int64_t hops() const override { return hops_; }
  float own() const override { return own_; }

 private:
  RandomGraph graph_;
  int64_t hops_;
  float own_;
};

}  // namespace

Result<std::unique_ptr<AttentionPattern>> make_diffuser(const OptionValues& options) {
  return std::unique_ptr<AttentionPattern>(std::make_unique<Diffuser>(options));
}

}  // namespace millrace
