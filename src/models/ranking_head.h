// RankingHead: what a reranker has behind its last norm, beside its output head or in its place. It turns the last
// token's final hidden state into a number for each label, and those into how relevant a document is.
//
//   hidden [width] -> dense [width, width] + bias, tanh (where there is one) -> out [labels, width] + bias -> logits
//
// One label: its logit is the score. Several, as in conversions of Qwen3-Reranker with "yes" and "no": softmax over
// them, and "yes" is the score. Sums are taken in double, one after the other: the same bits on every instruction set.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "loader/model_files.h"
#include "models/arch_spec.h"

namespace millrace {

class RankingHead {
 public:
  // Null where the files have none: GGUF must say `pooling_type` 4 and hold cls.output.weight, a folder must be of a
  // class ...ForSequenceClassification and hold score.weight. Errors: corrupt.
  // It is decoded from where it lies, which is a matter of some thousand numbers.
  static Result<std::optional<RankingHead>> read(const ModelFiles& files, const ArchSpec& spec);

  const std::vector<std::string>& labels() const { return labels_; }  // "" where the files name none
  // Which label says "relevant"; null: it classifies, and does not rank.
  std::optional<size_t> relevant() const { return relevant_; }

  // `hidden` [width], as the last norm leaves it. Of one label the logit, or with `activated` its sigmoid; of several
  // the probability of relevant(), which must be there.
  double score(std::span<const float> hidden, bool activated) const;

 private:
  std::vector<float> dense_, dense_bias_, out_, out_bias_;
  std::vector<std::string> labels_;
  std::optional<size_t> relevant_;
};

}  // namespace millrace
