// RankingHead: a reranker's head after its last norm, in addition to or instead of its output head. It maps one row of
// final hidden states to a logit per label, and those to a document's relevance. A decoder's head reads the last token,
// an encoder's the first one, ModernBERT's that one or the mean of all.
//
//   hidden [width] -> dense [width, width] + bias, tanh (optional) -> out [labels, width] + bias -> logits
//   ModernBERT: dense, GELU, LayerNorm in place of dense, tanh
//
// One label: its logit is the score. Several, as in conversions of Qwen3-Reranker with "yes" and "no": softmax over
// them, and the probability of "yes" is the score. Sums are in double and sequential: the same bits on every
// instruction set.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "loader/model_files.h"
#include "models/arch_spec.h"

namespace millrace {

// ARCH.pooling_type of GGUF files with a ranking head; frozen: llama.cpp's.
inline constexpr int64_t kRankPooling = 4;

class RankingHead {
 public:
  // Null if the files have none: GGUF must have `pooling_type` 4 and cls.output.weight, a folder must be of a class
  // ...ForSequenceClassification and have score.weight or its family's classifier. Errors: corrupt. Decoded directly
  // from the files, because it has only some thousand numbers.
  static Result<std::optional<RankingHead>> read(const ModelFiles& files, const ArchSpec& spec);
  // The head that compares the logits of two tokens, from the output head of a decoder: relevant() is the first token.
  // Errors: unsupported (an encoder, a token outside the vocabulary, or an output head whose rows cannot be read
  // alone).
  static Result<RankingHead> of_tokens(const ModelFiles& files, const ArchSpec& spec, int32_t relevant, int32_t other);

  const std::vector<std::string>& labels() const { return labels_; }  // "" if the files do not name them
  enum class Row : uint8_t { last, first, mean };
  Row row() const { return row_; }  // the row of a text's hidden states that the head reads
  // The label that means "relevant"; null: the head classifies and does not rank.
  std::optional<size_t> relevant() const { return relevant_; }

  // `hidden` [width], after the last norm. For one label its logit, or with `activated` its sigmoid; for several, the
  // probability of relevant(), which must not be null.
  double score(std::span<const float> hidden, bool activated) const;

 private:
  std::vector<float> dense_, dense_bias_, norm_, norm_bias_, out_, out_bias_;
  double norm_eps_ = 0;
  std::vector<std::string> labels_;
  std::optional<size_t> relevant_;
  Row row_ = Row::last;
};

}  // namespace millrace
