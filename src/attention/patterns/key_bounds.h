// KeyBounds: a pattern that scores a block by a bound of the products of its keys with a query: of each block the
// smallest and the largest key in every dimension are kept, m and M. No key of the block has a larger product with a
// query q than
//
//   U = sum over d of max(q[d] * m[d], q[d] * M[d])  =  max(q, 0) . M + min(q, 0) . m
#pragma once

#include <limits>

#include "attention/patterns/choosing_pattern.h"

namespace millrace {

class KeyBounds : public ChoosingPattern {
 public:
  explicit KeyBounds(const OptionValues& options) : ChoosingPattern(options), first_(options.integer("first")) {}

  int64_t summary_floats(int64_t head_dim) const override { return 2 * head_dim; }  // M, m

  void mark(const PatternPlace& at, int64_t query_block, BlockMarks& marks) const override {
    if (at.layer < first_) return marks.add(0, query_block);
    ChoosingPattern::mark(at, query_block, marks);
  }
  void start_summary(std::span<float> summary) const override {
    const size_t dim = summary.size() / 2;
    std::ranges::fill(summary.first(dim), -std::numeric_limits<float>::infinity());
    std::ranges::fill(summary.subspan(dim), std::numeric_limits<float>::infinity());
  }
  void add_key(const PatternPlace&, std::span<const float> key, std::span<float> summary) const override {
    float* most = summary.data();
    float* least = most + key.size();
    for (size_t d = 0; d < key.size(); ++d) {
      most[d] = std::max(most[d], key[d]);
      least[d] = std::min(least[d], key[d]);
    }
  }
  void add_query(const PatternPlace&, std::span<const float> query, std::span<float> features) const override {
    float* positive = features.data();
    float* negative = positive + query.size();
    for (size_t d = 0; d < query.size(); ++d) {
      positive[d] += std::max(query[d], 0.0f);
      negative[d] += std::min(query[d], 0.0f);
    }
  }

 private:
  int64_t first_;
};

}  // namespace millrace
