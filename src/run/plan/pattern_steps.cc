#include "run/plan/pattern_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "attention/pattern_layers.h"

namespace millrace {

Result<std::unique_ptr<PatternSteps>> PatternSteps::create(std::shared_ptr<const AttentionPattern> pattern,
                                                           const Model& model, int64_t context, int64_t block_tokens) {
  MILLRACE_TRY_VOID(check_pattern_blocks(*pattern, context, block_tokens));
  std::unique_ptr<PatternSteps> steps(new PatternSteps());
  steps->pattern_ = std::move(pattern);
  steps->model_ = model;
  steps->earlier_.assign(static_cast<size_t>(context / steps->pattern_->block() + 1), -1.0);
  if (const DiffusingPattern* diffusing = diffusing_pattern(steps->pattern_.get()))
    steps->hops_ = static_cast<double>(diffusing->hops());
  if (const DynamicPattern* dynamic = dynamic_pattern(steps->pattern_.get())) {
    const auto floats = static_cast<double>(dynamic->summary_floats(model.head_dim));
    steps->chooses_ = true;
    steps->summary_keys_ = 4 * floats / model.token_bytes;
    steps->summary_pairs_ = floats / static_cast<double>(2 * model.head_dim);  // products of a key, and of a value
  }
  return steps;
}

double PatternSteps::earlier(int64_t query_block) {
  double& known = earlier_[static_cast<size_t>(query_block)];
  if (known >= 0) return known;
  const DynamicPattern* dynamic = dynamic_pattern(pattern_.get());
  double blocks = 0;
  for (int64_t layer = 0; layer < model_.layers; ++layer) {
    for (int64_t head = 0; head < model_.kv_heads; ++head) {
      BlockMarks marks(query_block);
      pattern_->mark({layer, head, model_.kv_heads}, query_block, marks);
      blocks += static_cast<double>(marks.count());
      if (dynamic) blocks += dynamic->chosen({layer, head, model_.kv_heads}, query_block - marks.count());
    }
  }
  return known = blocks * static_cast<double>(pattern_->block()) / static_cast<double>(model_.layers * model_.kv_heads);
}

void PatternSteps::add(int64_t first, int64_t count, int64_t outputs, bool answer, StepShape& shape) {
  if (!pattern_->applies(answer)) return shape.add(first, count, outputs);
  shape.tokens += count;
  shape.outputs += outputs;
  const int64_t block = pattern_->block();
  double keys = 0, pairs = 0;
  for (int64_t query = first, end; query < first + count; query = end) {
    const int64_t own = query / block * block;
    end = std::min(first + count, own + block);
    const auto queries = static_cast<double>(end - query);
    const double before = earlier(query / block);
    const auto blocks = static_cast<double>(query / block);
    pairs += queries * (before + static_cast<double>(query - own) + 0.5 * (queries + 1) + blocks * summary_pairs_);
    keys += (chooses_ ? std::min(queries * before, static_cast<double>(own)) : before) + static_cast<double>(end - own);
  }
  keys = std::min(keys, static_cast<double>(first + count)) +
         static_cast<double>((first + count - 1) / block) * summary_keys_;
  shape.pairs += hops_ * pairs;
  shape.keys += std::llround(hops_ * keys);
}

}  // namespace millrace
