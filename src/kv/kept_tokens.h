// KeptTokens: an evictor's data about the tokens in one block table of a stream: their positions, and one sum for each:
// the attention that it has received, or the worth of its keys. Heads that choose for themselves have separate columns.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/token_evictor.h"

namespace millrace {

class KeptTokens {
 public:
  explicit KeptTokens(int64_t heads = 1) : heads_(heads) {}

  // So that a step allocates nothing, with at most `stored` tokens and drafts of up to `drafted` ones.
  void reserve(int64_t stored, int64_t drafted, bool needs_sums);
  int64_t evicted() const { return evicted_; }

  // [slots, heads], the sums of the first slots, to add to; those of new slots are 0.
  std::span<int64_t> mass(int64_t slots);
  std::span<int64_t> mass() { return mass_; }
  // Attention mass that the query of each drafted token of a step adds, [drafted, slots, heads], set to zero. It counts
  // only if the drafted token is kept, which is known later.
  std::span<int64_t> draft_mass(int64_t drafted, int64_t slots);
  std::span<int64_t> draft_mass() { return std::span(draft_mass_).first(static_cast<size_t>(draft_size_)); }
  // The next one of them is kept.
  void keep_drafted();
  // Nothing is stored any longer.
  void clear();
  // StoredTokens::first_query
  void observe_from(int64_t position) { first_query_ = static_cast<int32_t>(position); }

  // Knows the tokens that are stored when `computed` of the text are computed, and how many these are.
  int64_t see(int64_t computed);
  // Then each head keeps `budget` of them. [heads, budget] slots, ascending in each head; valid until the next call.
  std::span<const int32_t> keep(const TokenEvictor& evictor, int64_t budget);
  // Or these slots remain, ascending. One head.
  std::span<const int32_t> keep_slots(std::span<const int32_t> slots);
  std::span<const int32_t> kept() const { return kept_; }
  // [stored, heads]
  std::span<const int32_t> positions() const { return positions_; }

 private:
  void choose(const TokenEvictor& evictor, int64_t head, int64_t stored, int64_t excess);

  int64_t heads_, evicted_ = 0;
  int32_t first_query_ = 0;
  std::vector<int32_t> positions_, kept_, dropped_;
  std::vector<int64_t> mass_, draft_mass_;
  std::vector<int32_t> own_positions_;  // positions of this head's tokens, where there are several heads
  std::vector<int64_t> own_mass_;
  int64_t draft_slots_ = 0, draft_size_ = 0, kept_drafts_ = 0;
};

}  // namespace millrace
