// Sparse Causal FlashAttention (Pagliardini et al., 2023), in the paper's two forms.
//
// form=hash: queries and keys have one hash each, and a query attends to the earlier keys of its bucket, however many
// they are. The paper's kernel sorts tokens by bucket and skips tiles without such pairs; here tiles are the blocks of
// the stream as it is, and a block with such a key is seen whole.
//
// form=drop, "QK-sparse": each head goes without some keys and some queries. The paper's kernel takes them as given,
// and its experiments draw tokens at random for each head. Here blocks are drawn, since they are what can be skipped,
// and from the seed, so that a stream always has the same. The first `sinks` and the newest `window` blocks are never
// dropped; they are all that a dropped query sees, which in the paper sees nothing.
#include <cmath>

#include "attention/dynamic_pattern.h"
#include "attention/patterns/factories.h"
#include "attention/patterns/hash_rotations.h"
#include "base/philox.h"

namespace millrace {
namespace {

class HashSparse final : public DynamicPattern {
 public:
  HashSparse(int64_t window, HashRotations rotations) : window_(window), rotations_(std::move(rotations)) {}

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
  // As if keys were spread evenly over the buckets.
  double chosen(const PatternPlace&, int64_t left) const override {
    const double others = 1 - 1.0 / static_cast<double>(rotations_.buckets());
    return static_cast<double>(left) * (1 - std::pow(others, static_cast<double>(block())));
  }
  void choose(const PatternPlace&, std::span<const float> scores, std::span<float>, BlockMarks& marks) const override {
    for (size_t i = 0; i < scores.size(); ++i)
      if (scores[i] > 0) marks.add(static_cast<int64_t>(i));
  }

 private:
  int64_t window_;
  HashRotations rotations_;
};

class DropSparse final : public AttentionPattern {
 public:
  explicit DropSparse(const OptionValues& options)
      : window_(options.integer("window")),
        sinks_(options.integer("sinks")),
        keys_(options.number("drop")),
        queries_(options.number("drop_queries")),
        seed_(static_cast<uint64_t>(options.integer("seed"))) {}

  void mark(const PatternPlace& at, int64_t query_block, BlockMarks& marks) const override {
    marks.add(0, sinks_);
    marks.add(query_block - window_ + 1, query_block);
    if (drawn(at, 0, query_block) < queries_) return;
    for (int64_t j = sinks_; j < query_block; ++j)
      if (drawn(at, 1, j) >= keys_) marks.add(j);
  }

 private:
  // In [0, 1). side: 0 queries, 1 keys.
  double drawn(const PatternPlace& at, uint64_t side, int64_t block) const {
    const auto stream = static_cast<uint64_t>(at.layer * at.heads + at.head);
    return philox_uniform(seed_, 2 * stream + side, static_cast<uint64_t>(block));
  }

  int64_t window_, sinks_;
  double keys_, queries_;
  uint64_t seed_;
};

}  // namespace

Result<std::unique_ptr<AttentionPattern>> make_sparse_flash_attention(const OptionValues& options) {
  const std::string& form = options.text("form");
  if (form == "drop") return std::unique_ptr<AttentionPattern>(std::make_unique<DropSparse>(options));
  if (form != "hash") return Error::user("form: must be hash or drop, got '" + form + "'");
  MILLRACE_TRY(auto rotations, make_hash_rotations(1, options));
  return std::unique_ptr<AttentionPattern>(
      std::make_unique<HashSparse>(options.integer("window"), std::move(rotations)));
}

}  // namespace millrace
