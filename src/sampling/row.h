// SamplingRow: the logits of one position while they are turned into a token. It starts dense, as logits over the whole
// vocabulary, which steps edit in place; the first truncating step turns it into a list of candidates for the later
// steps.
//
//   dense   logits  [vocabulary]                 penalties, bias, bans: edited in place
//   list    candidates {logit, token} ...        top-k, top-p ...: fewer and fewer; leading `sorted` ones are the best
//
// Every operation has the same effect on both forms: a list behaves as if all other logits were -inf, and no operation
// restores a token that is not a candidate, except force() on a dense row. So steps need not know the form.
//
// Candidates are ordered by logit everywhere, ties by lower token id. NaN is treated as -inf, -inf is not a candidate,
// +inf is treated as the largest float. Sums are in double in candidate order. Not thread-safe; reuse one row for many
// positions to reuse its memory.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/philox.h"
#include "kernels/candidate.h"

namespace millrace {

inline bool better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

enum class Estimate;  // sampling/estimate.h

// Streams of random numbers, one per step that draws; the last three are of speculation (speculate/acceptance.h).
// Frozen: a different number yields different tokens for the same seed.
enum class RandomStream : uint64_t { token = 0, xtc = 1, draft = 2, accept = 3, residual = 4 };

// Softmax over the current candidates: p = exp(logit - max) / total.
struct Softmax {
  double max = 0;
  double total = 0;
  double probability(float logit) const;
};

class SamplingRow {
 public:
  // So that rows of up to `vocab` tokens allocate nothing.
  void reserve(int64_t vocab);
  // Starts a row. `logits` is edited in place and must outlive the row's use. `position` counts generated tokens.
  void begin(std::span<float> logits, uint64_t seed, int64_t position);

  int64_t position() const { return position_; }
  // The position's number of that stream, or its `index`-th one.
  double uniform(RandomStream stream, uint64_t index = 0) const {
    return philox_uniform(seed_, static_cast<uint64_t>(stream) | index << 8, static_cast<uint64_t>(position_));
  }

  bool dense() const { return dense_; }

  // Changes one candidate's logit; other tokens are ignored, as are ids outside the vocabulary.
  template <typename Edit>
  void edit(TokenId token, Edit change) {
    if (token < 0 || static_cast<size_t>(token) >= logits_.size()) return;
    if (!dense_) {
      const size_t at = place_of(token);
      if (at < list_.size()) set_logit(at, change(list_[at].logit));
      return;
    }
    float& logit = logits_[static_cast<size_t>(token)];
    if (logit > -std::numeric_limits<float>::infinity()) logit = change(logit);
  }

  // The candidates; converts a dense row to a list first.
  std::vector<Candidate>& candidates();
  size_t sorted() const { return sorted_; }

  // Reduces the row to its `k` best candidates, in order; all of them if there are fewer.
  void keep_best(size_t k);
  // Reduces the row to those of these tokens (ascending, no duplicates) that are candidates.
  void keep_tokens(std::span<const TokenId> tokens);
  // Makes this token the only candidate. A dense row contains every token, even one with logit -inf: force() overrides
  // bans. A list without it becomes empty.
  void force(TokenId token);
  // Keeps the tokens whose bit is set in bits[token / 64]; tokens beyond the bits are dropped. A row stays dense if
  // many are kept.
  void keep_bits(std::span<const uint64_t> bits);
  // Reduces the row to the candidates with logit >= threshold.
  void keep_above(double threshold);
  // Reduces the row to the single best candidate.
  void keep_argmax();
  // Moves the `n` best of the list to the front, in order.
  void sort_prefix(size_t n);
  void truncate(size_t n);
  void drop_front(size_t n);
  void set_unsorted() { sorted_ = 0; }
  // Reduces a large dense row to the fewest best candidates that have the share p of the mass, in order. Returns false
  // and leaves the row unchanged if the row is small or a list, or if an estimate (estimate.h) cannot decide how many.
  bool keep_nucleus(double p);
  // Divides the difference of each logit from the largest by the temperature, which is above 0.
  void scale(double temperature);
  // The first candidate in order at which the sum of weights exceeds the share `uniform` of their total; -1: the row is
  // small, or an estimate (estimate.h) does not decide.
  TokenId draw_estimated(double uniform);

  // Calls visit(i) for candidates in order, sorting only as far as needed; visit returns false to stop.
  template <typename Visit>
  void visit_sorted(Visit visit) {
    auto& list = candidates();
    for (size_t i = 0; i < list.size(); ++i) {
      if (i >= sorted_) sort_prefix(i < 64 ? 64 : i * 4);
      if (!visit(i)) return;
    }
  }

  float max_logit() const;                                      // -inf without candidates
  Softmax softmax();                                            // over candidates()
  std::span<const double> weights() const { return weights_; }  // exp(logit - max) per candidate, from softmax()

 private:
  size_t place_of(TokenId token) const;       // index in the list; its size if absent
  void set_logit(size_t place, float logit);  // -inf and NaN remove it from the list
  template <typename Keep>
  void keep_if(Keep keep);  // filters the list, in order
  void strike(std::span<const uint64_t> bits);
  const float* block(size_t first, size_t count, float* copy) const;
  double estimate_blocks(double max, Estimate estimate);
  TokenId draw_from_blocks(double max, double target, double error) const;
  double nucleus_floor(double max, double mass) const;
  size_t mass_prefix(double max, double mass, double error) const;

  std::span<float> logits_;
  std::vector<Candidate> list_;
  std::vector<Candidate> spare_;  // for sorting
  std::vector<double> weights_;
  std::vector<double> blocks_;  // sums of kEstimateBlock weights
  size_t sorted_ = 0;
  bool dense_ = true;
  uint64_t seed_ = 0;
  int64_t position_ = 0;
};

// Index of the largest logit, the first one on ties, NaN ignored; -1 if every logit is NaN or -inf. One pass.
TokenId argmax(std::span<const float> logits);

// The out.size() largest logits, largest first, ties by id, NaN ignored; -1 where there are no more. One pass.
void largest_tokens(std::span<const float> logits, std::span<TokenId> out);

// Largest of n logits, NaN ignored; -inf if there is none.
float block_max(const float* x, size_t n);

}  // namespace millrace
