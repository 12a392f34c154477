// SamplingRow: the logits of one position, from which a token is sampled. A row starts dense, as logits over the whole
// vocabulary, which steps edit in place. The first truncating step converts the row to a list of candidates for the
// later steps.
//
//   dense   logits  [vocabulary]                 penalties, bias, bans: edited in place
//   list    candidates {logit, token} ...        top-k, top-p ...: reduce the list; its first `sorted` are the best
//
// Steps need not know the form, because every operation has the same effect on both forms. A list behaves as if all
// other logits were -inf. No operation restores a token that is not a candidate, except force() on a dense row.
//
// Candidates are always ordered by logit, ties by lower token id. NaN is treated as -inf, and +inf as the largest
// float. A token with -inf is not a candidate. Sums are in double, in candidate order. Not thread-safe. Reuse one row
// for many positions to reuse its memory.
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

// Streams of random numbers, one per step that draws. The last three are used by speculation (speculate/acceptance.h).
// Never change the values: a different value yields different tokens for the same seed.
enum class RandomStream : uint64_t { token = 0, xtc = 1, draft = 2, accept = 3, residual = 4 };

// Softmax over the current candidates: p = exp(logit - max) / total.
struct Softmax {
  double max = 0;
  double total = 0;
  double probability(float logit) const;
};

class SamplingRow {
 public:
  // Allocates memory for rows of up to `vocab` tokens, so that later operations allocate nothing.
  void reserve(int64_t vocab);
  // Starts a row. `logits` [vocab] is edited in place and must outlive the row's use. `position`: number of generated
  // tokens before this one.
  void begin(std::span<float> logits, uint64_t seed, int64_t position);

  int64_t position() const { return position_; }
  // Returns random number `index` of `stream` for this position, in [0, 1).
  double uniform(RandomStream stream, uint64_t index = 0) const {
    return philox_uniform(seed_, static_cast<uint64_t>(stream) | index << 8, static_cast<uint64_t>(position_));
  }

  bool dense() const { return dense_; }

  // Replaces the logit of candidate `token` by change(logit). No effect if `token` is not a candidate.
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

  // Returns the candidates. Converts a dense row to a list first.
  std::vector<Candidate>& candidates();
  size_t sorted() const { return sorted_; }

  // Reduces the row to its `k` best candidates, in order, or to all candidates if there are fewer.
  void keep_best(size_t k);
  // Reduces the row to those candidates that are among `tokens` (ascending, no duplicates).
  void keep_tokens(std::span<const TokenId> tokens);
  // Makes this token the only candidate. On a dense row, force() overrides bans: the token becomes a candidate even if
  // its logit is -inf. A list without the token becomes empty.
  void force(TokenId token);
  // Keeps the tokens whose bit is set in bits[token / 64]; tokens beyond the bits are dropped. A dense row stays dense
  // if many tokens are kept.
  void keep_bits(std::span<const uint64_t> bits);
  // Reduces the row to the candidates with logit >= threshold.
  void keep_above(double threshold);
  // Reduces the row to the single best candidate.
  void keep_argmax();
  // Moves the `n` best candidates of the list to its front, in order.
  void sort_prefix(size_t n);
  void truncate(size_t n);
  void drop_front(size_t n);
  void set_unsorted() { sorted_ = 0; }
  // Reduces a large dense row to its nucleus: the smallest number of best candidates, in order, whose probabilities sum
  // to at least p. Returns false and does not change the row if the row is small or a list, or if an estimate
  // (estimate.h) cannot decide the number.
  bool keep_nucleus(double p);
  // Divides the difference of each logit from the largest logit by `temperature`, which is above 0.
  void scale(double temperature);
  // Returns the first candidate in order at which the sum of weights exceeds `uniform` times their total. Returns -1 if
  // the row is small, or if an estimate (estimate.h) cannot decide.
  TokenId draw_estimated(double uniform);

  // Calls visit(i) for candidates in order, until it returns false. Sorts only as many candidates as needed.
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
  void set_logit(size_t place, float logit);  // removes the candidate from the list if `logit` is -inf or NaN
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

// Returns the index of the largest logit, the lowest index on ties. Ignores NaN. Returns -1 if every logit is NaN or
// -inf.
TokenId argmax(std::span<const float> logits);

// Writes the tokens with the out.size() largest logits to `out`, largest first, ties by id. Ignores NaN. Fills `out`
// with -1 if there are fewer.
void largest_tokens(std::span<const float> logits, std::span<TokenId> out);

// Returns the largest of n logits. Ignores NaN. Returns -inf if there is none.
float block_max(const float* x, size_t n);

}  // namespace millrace
