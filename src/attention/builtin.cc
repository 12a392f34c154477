// The attention patterns.
#include "attention/pattern.h"

namespace millrace {
namespace {

constexpr AttentionPattern kFull = {"full", "Every earlier key, online softmax over fixed partitions of paged blocks",
                                    "Dao et al., 2022, FlashAttention; Kwon et al., 2023, PagedAttention"};
constexpr AttentionPattern kWindow = {"window",
                                      "The last N keys of a sliding window, in layers where the model uses it",
                                      "Beltagy et al., 2020, Longformer; Jiang et al., 2023, Mistral 7B"};

}  // namespace

const Registry<const AttentionPattern*>& attention_patterns() {
  static const Registry<const AttentionPattern*> registry("attention", {&kFull, &kWindow});
  return registry;
}

}  // namespace millrace
