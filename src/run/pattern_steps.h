// PatternSteps: the keys that a step reads, and its pairs, where a static attention pattern leaves some out; in the
// mean over the layers and KV heads of a simulated model.
#pragma once

#include <memory>
#include <vector>

#include "attention/pattern.h"
#include "schedule/cost_model.h"

namespace millrace {

class PatternSteps {
 public:
  // Errors: user, unsupported.
  static Result<std::unique_ptr<PatternSteps>> create(std::shared_ptr<const AttentionPattern> pattern, int64_t layers,
                                                      int64_t kv_heads, int64_t context, int64_t block_tokens);

  // As StepShape::add(). Keys that several blocks of queries see are read by each, up to all that there are.
  void add(int64_t first, int64_t count, int64_t outputs, StepShape& shape);

 private:
  PatternSteps() = default;
  double earlier(int64_t query_block);

  std::shared_ptr<const AttentionPattern> pattern_;
  int64_t layers_ = 1, kv_heads_ = 1;
  std::vector<double> earlier_;  // keys before each block of queries that it sees; negative: not known yet
};

}  // namespace millrace
