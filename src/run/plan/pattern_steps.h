// PatternSteps: the keys that a step reads, and its pairs of query and key, if an attention pattern leaves some out; on
// average over the layers and KV heads of a simulated model. Queries of dynamic patterns choose their usual number of
// blocks; their choice does not matter here. They also read and weigh the summaries of all earlier blocks, counted in
// keys of equal bytes, and in pairs of equal products. Hops of a diffusing pattern read the keys of its graph each
// time.
#pragma once

#include <memory>
#include <vector>

#include "attention/pattern.h"
#include "schedule/cost_model.h"

namespace millrace {

class PatternSteps {
 public:
  struct Model {
    int64_t layers = 1, kv_heads = 1;
    int64_t head_dim = 1;
    double token_bytes = 1;  // bytes of a key and a value of one head
  };
  // Errors: user.
  static Result<std::unique_ptr<PatternSteps>> create(std::shared_ptr<const AttentionPattern> pattern,
                                                      const Model& model, int64_t context, int64_t block_tokens);

  bool stores_rows() const { return chooses_ || hops_ > 1; }  // rows in addition to keys and values

  bool has_phase() const { return millrace::has_phase(pattern_.get()); }

  // As StepShape::add(), of tokens of prompts, or of answers. Keys that several blocks of queries see, or queries that
  // choose, are read by each, up to all that there are.
  void add(int64_t first, int64_t count, int64_t outputs, bool answer, StepShape& shape);

 private:
  PatternSteps() = default;
  double earlier(int64_t query_block);

  std::shared_ptr<const AttentionPattern> pattern_;
  Model model_;
  bool chooses_ = false;
  double hops_ = 1;
  double summary_keys_ = 0, summary_pairs_ = 0;  // for an earlier block
  std::vector<double> earlier_;  // keys before each block of queries that it sees; negative: not known yet
};

}  // namespace millrace
