#include "run/pattern_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "attention/pattern_layers.h"

namespace millrace {

Result<std::unique_ptr<PatternSteps>> PatternSteps::create(std::shared_ptr<const AttentionPattern> pattern,
                                                           int64_t layers, int64_t kv_heads, int64_t context,
                                                           int64_t block_tokens) {
  if (pattern_layer_sets(pattern.get()) > 0)
    return Error::unsupported(fmt::format(
        "attention {}: depends on keys or values, which a simulation does not compute; choose a static pattern",
        pattern->text()));
  MILLRACE_TRY_VOID(check_pattern_blocks(*pattern, context, block_tokens));
  std::unique_ptr<PatternSteps> steps(new PatternSteps());
  steps->pattern_ = std::move(pattern);
  steps->layers_ = layers;
  steps->kv_heads_ = kv_heads;
  steps->earlier_.assign(static_cast<size_t>(context / steps->pattern_->block() + 1), -1.0);
  return steps;
}

double PatternSteps::earlier(int64_t query_block) {
  double& known = earlier_[static_cast<size_t>(query_block)];
  if (known >= 0) return known;
  int64_t blocks = 0;
  for (int64_t layer = 0; layer < layers_; ++layer) {
    for (int64_t head = 0; head < kv_heads_; ++head) {
      BlockMarks marks(query_block);
      pattern_->mark({layer, head, kv_heads_}, query_block, marks);
      blocks += marks.count();
    }
  }
  return known = static_cast<double>(blocks * pattern_->block()) / static_cast<double>(layers_ * kv_heads_);
}

void PatternSteps::add(int64_t first, int64_t count, int64_t outputs, StepShape& shape) {
  shape.tokens += count;
  shape.outputs += outputs;
  const int64_t block = pattern_->block();
  double keys = 0;
  for (int64_t query = first, end; query < first + count; query = end) {
    const int64_t own = query / block * block;
    end = std::min(first + count, own + block);
    const auto queries = static_cast<double>(end - query);
    const double before = earlier(query / block);
    shape.pairs += queries * (before + static_cast<double>(query - own) + 0.5 * (queries + 1));
    keys += before + static_cast<double>(end - own);
  }
  shape.keys += std::min<int64_t>(first + count, std::llround(keys));
}

}  // namespace millrace
