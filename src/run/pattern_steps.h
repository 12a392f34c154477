// PatternSteps: the keys that a step reads, and its pairs, where an attention pattern leaves some out; in the mean over
// the layers and KV heads of a simulated model. Queries of dynamic patterns choose as many blocks as they would, which
// ones does not matter here; and they read and weigh the summaries of all earlier blocks, counted in keys of as many
// bytes, and in pairs of as many products. Hops of a diffusing one read what the graph shows each time.
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
    double token_bytes = 1;  // of a key and a value of one head
  };
  // Errors: user.
  static Result<std::unique_ptr<PatternSteps>> create(std::shared_ptr<const AttentionPattern> pattern,
                                                      const Model& model, int64_t context, int64_t block_tokens);

  bool stores_rows() const { return chooses_ || hops_ > 1; }  // beside keys and values

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
  double summary_keys_ = 0, summary_pairs_ = 0;  // of an earlier block
  std::vector<double> earlier_;  // keys before each block of queries that it sees; negative: not known yet
};

}  // namespace millrace
