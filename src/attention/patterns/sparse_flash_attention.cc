// Sparse Causal FlashAttention (Pagliardini et al., 2023), hash-sparse: queries and keys have one hash each, and a
// query attends to the earlier keys of its bucket, however many they are. The paper's kernel sorts tokens by bucket and
// skips tiles without such pairs; here tiles are the blocks of the stream as it is, and a block with such a key is seen
// whole. The qk-sparse form, which is given the dropped queries and keys, is for whoever trains with them, and is not
// here.
#include "attention/dynamic_pattern.h"
#include "attention/patterns/factories.h"
#include "attention/patterns/hash_rotations.h"

namespace millrace {
namespace {

class SparseFlashAttention final : public DynamicPattern {
 public:
  SparseFlashAttention(int64_t window, HashRotations rotations) : window_(window), rotations_(std::move(rotations)) {}

  int64_t summary_floats(int64_t) const override { return rotations_.buckets(); }
  void mark(const PatternPlace&, int64_t query_block, BlockMarks& marks) const override {
    marks.add(query_block - window_ + 1, query_block);
  }
  void add_key(const PatternPlace&, std::span<const float> key, std::span<float> summary) const override {
    rotations_.count(key, summary);
  }
  void add_query(const PatternPlace&, std::span<const float> query, std::span<float> features) const override {
    rotations_.count(query, features);
  }
  void choose(std::span<const float> scores, std::span<float>, BlockMarks& marks) const override {
    for (size_t i = 0; i < scores.size(); ++i)
      if (scores[i] > 0) marks.add(static_cast<int64_t>(i));
  }

 private:
  int64_t window_;
  HashRotations rotations_;
};

}  // namespace

Result<std::unique_ptr<AttentionPattern>> make_sparse_flash_attention(const OptionValues& options) {
  MILLRACE_TRY(auto rotations, make_hash_rotations(1, options));
  return std::unique_ptr<AttentionPattern>(
      std::make_unique<SparseFlashAttention>(options.integer("window"), std::move(rotations)));
}

}  // namespace millrace
