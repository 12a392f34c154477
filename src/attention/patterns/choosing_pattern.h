// ChoosingPattern: a dynamic pattern whose queries see the first and the newest blocks, and the `top` blocks with the
// highest scores among the others. Derived classes define summaries and features.
#pragma once

#include "attention/dynamic_pattern.h"
#include "attention/patterns/factories.h"
#include "attention/top_blocks.h"

namespace millrace {

class ChoosingPattern : public DynamicPattern {
 public:
  explicit ChoosingPattern(const OptionValues& options)
      : top_(options.integer("top")), sinks_(options.integer("sinks")), window_(options.integer("window")) {}

  void mark(const PatternPlace&, int64_t query_block, BlockMarks& marks) const override {
    marks.add(0, sinks_);
    marks.add(query_block - window_ + 1, query_block);
  }
  double chosen(const PatternPlace&, int64_t left) const override { return static_cast<double>(std::min(top_, left)); }
  void choose(const PatternPlace&, std::span<const float> scores, std::span<float> work,
              BlockMarks& marks) const override {
    mark_top(scores, top_, work, marks);
  }

 private:
  int64_t top_, sinks_, window_;
};

}  // namespace millrace
