// MInference 1.0 (Jiang et al., 2024), its block-sparse heads: a block's score is the product of the query with the
// mean of its keys, and a query sees the blocks with the highest. The paper pools the queries of a block, too; here
// each query is its own pool, since the others of its block may come in a later chunk. Its vertical-slash heads take
// the columns of a prompt's last queries, which earlier queries would have to wait for, and are not here; its A-shape
// heads are sink_window. Heads that share a KV head choose together, by the mean of their products.
#include "attention/patterns/choosing_pattern.h"

namespace millrace {
namespace {

class MInference final : public ChoosingPattern {
 public:
  using ChoosingPattern::ChoosingPattern;

  // Sums: a block's keys and a KV head's queries are as many everywhere, so means have the same order.
  int64_t summary_floats(int64_t head_dim) const override { return head_dim; }

  void add_key(const PatternPlace&, std::span<const float> key, std::span<float> summary) const override {
    for (size_t d = 0; d < key.size(); ++d) summary[d] += key[d];
  }
  void add_query(const PatternPlace&, std::span<const float> query, std::span<float> features) const override {
    for (size_t d = 0; d < query.size(); ++d) features[d] += query[d];
  }
};

}  // namespace

Result<std::unique_ptr<AttentionPattern>> make_minference(const OptionValues& options) {
  return std::unique_ptr<AttentionPattern>(std::make_unique<MInference>(options));
}

}  // namespace millrace
