// RandomGraph: marks the blocks of a sparse graph: a window, the first blocks, and random blocks between them. The
// random blocks are distinct, and are drawn from the seed for each layer, head and query block.
#pragma once

#include <algorithm>

#include "attention/pattern.h"
#include "base/philox.h"

namespace millrace {

class RandomGraph {
 public:
  explicit RandomGraph(const OptionValues& options)
      : window_(options.integer("window")),
        global_(options.integer("global")),
        random_(options.integer("random")),
        seed_(static_cast<uint64_t>(options.integer("seed"))) {}

  void mark(const PatternPlace& at, int64_t query_block, BlockMarks& marks) const {
    const int64_t window_begin = std::max<int64_t>(0, query_block - window_ + 1);
    marks.add(0, global_);
    marks.add(window_begin, query_block);
    // Robert Floyd's sample of distinct numbers: each set of `count` of the candidates is equally likely.
    const int64_t candidates = window_begin - global_;
    const int64_t count = std::min(random_, candidates);
    const auto stream = static_cast<uint64_t>(at.layer * at.heads + at.head);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t last = candidates - count + i;
      const double draw = philox_uniform(seed_, stream, static_cast<uint64_t>(query_block * random_ + i));
      const auto chosen = static_cast<int64_t>(draw * static_cast<double>(last + 1));
      marks.add(global_ + (marks.has(global_ + chosen) ? last : chosen));
    }
  }

 private:
  int64_t window_, global_, random_;
  uint64_t seed_;
};

}  // namespace millrace
