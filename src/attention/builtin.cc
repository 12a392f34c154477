// The attention patterns.
#include "attention/pattern.h"

namespace millrace {
namespace {

constexpr AttentionPattern kFull = {
    "full", "Every earlier key, online softmax over fixed partitions of paged blocks",
    "Dao et al., 2022, FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness; Kwon et al., 2023, "
    "Efficient Memory Management for Large Language Model Serving with PagedAttention"};
constexpr AttentionPattern kWindow = {
    "window", "The last N keys of a sliding window, in layers where the model uses it",
    "Beltagy et al., 2020, Longformer: The Long-Document Transformer; Jiang et al., 2023, Mistral 7B"};

}  // namespace

const Registry<const AttentionPattern*>& attention_patterns() {
  static const Registry<const AttentionPattern*> registry(
      "attention", {.loss = Loss::lossless, .test = "tests/conformance/attention_test.cc"}, {&kFull, &kWindow});
  return registry;
}

}  // namespace millrace
