// DynamicPattern: an attention pattern whose queries choose blocks by scores. Each earlier block has a summary of its
// keys: a vector of summary_floats() floats, computed from the block's stored keys in their order and stored next to
// them (attention/key_summaries.h). Each query token has features, a vector of the same size, for all query heads of a
// KV head together. A block's score is the dot product of its summary and the token's features. Each query token
// chooses for itself (attention/chosen_blocks.h), so its blocks depend on its stream alone, as with other patterns.
#pragma once

#include <span>

#include "attention/pattern.h"

namespace millrace {

inline constexpr int64_t kMaxDynamicDim = 1024;   // maximum head dim
inline constexpr int64_t kMaxDynamicBlock = 256;  // maximum tokens of a block

// Summaries of the blocks before a query's own block, for one layer and KV head.
class BlockSummaries {
 public:
  virtual ~BlockSummaries() = default;
  virtual std::span<const float> operator[](int64_t block) const = 0;
};

// How the queries of a head choose blocks in addition to those of mark().
enum class HeadChoice : uint8_t {
  scores,  // each query chooses by the scores
  none,    // the queries see no other blocks
  lines,   // all queries of a block see the lines that earlier queries have found (attention/block_lines.h)
  sums,    // all queries of a block see the blocks that received most attention so far (attention/block_sums.h)
};

struct LineCounts {
  int64_t vertical = 0;  // number of blocks that all later queries see
  int64_t slash = 0;     // number of distances (in blocks) at which every later query sees a block
};

struct SumCounts {
  int64_t top = 0;   // number of blocks with the largest sums that a query sees
  int64_t kept = 0;  // number of blocks whose sums are stored; 0: no head has sums
};

class DynamicPattern : public AttentionPattern {
 public:
  // mark() of a dynamic pattern marks the blocks that every query of the block sees.

  virtual HeadChoice choice(const PatternPlace&) const { return HeadChoice::scores; }
  // The KV head whose queries and summaries choose for this one, with HeadChoice::scores.
  virtual int64_t judge(const PatternPlace& at) const { return at.head; }
  virtual LineCounts lines(const PatternPlace&) const { return {}; }
  virtual LineCounts most_lines() const { return {}; }  // maximum over the heads
  // Number of blocks between two searches for lines; 0: no head has lines.
  virtual int64_t line_blocks() const { return 0; }
  virtual SumCounts sums() const { return {}; }

  virtual int64_t summary_floats(int64_t head_dim) const = 0;
  virtual void start_summary(std::span<float> summary) const { std::ranges::fill(summary, 0.0f); }
  virtual void add_key(const PatternPlace& at, std::span<const float> key, std::span<float> summary) const = 0;
  // Adds one query head's features to the token's features, which are 0 before the first head.
  virtual void add_query(const PatternPlace& at, std::span<const float> query, std::span<float> features) const = 0;
  // For patterns that weigh blocks against each other: computes a number for each block from the summaries alone; the
  // number is added to the block's score once for every query head. `work`: room for balance_floats() floats. If
  // balance_floats() is 0, nothing is added.
  virtual int64_t balance_floats(int64_t /*blocks*/) const { return 0; }
  virtual void balance(const PatternPlace&, const BlockSummaries&, std::span<float> added,
                       std::span<float> /*work*/) const {
    std::ranges::fill(added, 0.0f);
  }
  // Expected number of blocks that a query attends among the `left` blocks that mark() did not mark. Used where scores
  // are not available, for example by the cost model.
  virtual double chosen(const PatternPlace& at, int64_t left) const = 0;
  // Marks blocks in addition to those of mark(), by their scores, of which none is NaN. `work`: room for scores.size()
  // floats.
  virtual void choose(const PatternPlace& at, std::span<const float> scores, std::span<float> work,
                      BlockMarks& marks) const = 0;
};

// Returns null if the pattern is static or null.
inline const DynamicPattern* dynamic_pattern(const AttentionPattern* pattern) {
  return dynamic_cast<const DynamicPattern*>(pattern);
}

}  // namespace millrace
