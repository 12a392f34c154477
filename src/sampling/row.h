// SamplingRow: the logits of one position on their way to a token. It starts dense, as logits over the whole
// vocabulary, where steps edit them; the first step that truncates turns it into a list of candidates, which is what
// later steps see.
//
//   dense   logits  [vocabulary]                 penalties, bias, bans: edited in place
//   list    candidates {logit, token} ...        top-k, top-p ...: fewer and fewer; leading `sorted` ones are the best
//
// Every operation does the same to both: on a list it is as if all other logits were -inf, and no operation brings back
// a token that is no candidate, but for force() on a dense row. So steps need not know which form they get.
//
// Order among candidates is by logit, ties by lower token id, everywhere. NaN reads as -inf, -inf is no candidate, +inf
// reads as the largest float. Sums are in double in the order of the candidates. Not thread-safe; reuse one row for
// many positions to keep its memory.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/philox.h"
#include "millrace/token.h"

namespace millrace {

struct Candidate {
  float logit = 0;
  TokenId token = 0;
};

inline bool better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// Streams of random numbers, one per step that draws. Frozen: another number means other tokens for the same seed.
enum class RandomStream : uint64_t { token = 0, xtc = 1 };

// Softmax over the candidates at hand: p = exp(logit - max) / total.
struct Softmax {
  double max = 0;
  double total = 0;
  double probability(float logit) const;
};

class SamplingRow {
 public:
  // Starts a row. `logits` is edited in place and must outlive the row's use. `position` counts generated tokens.
  void begin(std::span<float> logits, uint64_t seed, int64_t position);

  int64_t position() const { return position_; }
  double uniform(RandomStream stream) const {
    return philox_uniform(seed_, static_cast<uint64_t>(stream), static_cast<uint64_t>(position_));
  }

  bool dense() const { return dense_; }

  // Changes one candidate's logit; a token that is none stays none, and ids outside the vocabulary are ignored.
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

  // The candidates; makes the list of a dense row first.
  std::vector<Candidate>& candidates();
  size_t sorted() const { return sorted_; }

  // Makes the list the `k` best of a row in order; all of them if there are fewer.
  void keep_best(size_t k);
  // Makes the list those of these tokens (ascending, no duplicates) that are candidates.
  void keep_tokens(std::span<const TokenId> tokens);
  // Makes this token the one candidate. A dense row has every token, even one with the logit -inf: bans stand below. A
  // list without it is left empty.
  void force(TokenId token);
  // Keeps the tokens whose bit is set in bits[token / 64]; what is behind the bits goes. A row that many are kept of
  // stays dense.
  void keep_bits(std::span<const uint64_t> bits);
  // Makes the list those with logit >= threshold.
  void keep_above(double threshold);
  // Makes the list the one best candidate.
  void keep_argmax();
  // Puts the `n` best of the list first, in order.
  void sort_prefix(size_t n);
  void truncate(size_t n);
  void drop_front(size_t n);
  void set_unsorted() { sorted_ = 0; }

  // Calls visit(i) for candidates in order, sorting as far as it goes on; visit returns false to stop.
  template <typename Visit>
  void visit_sorted(Visit visit) {
    auto& list = candidates();
    for (size_t i = 0; i < list.size(); ++i) {
      if (i >= sorted_) sort_prefix(i < 64 ? 64 : i * 4);
      if (!visit(i)) return;
    }
  }

  float max_logit() const;                                      // -inf when there is no candidate
  Softmax softmax();                                            // over candidates()
  std::span<const double> weights() const { return weights_; }  // exp(logit - max) of each, of the last softmax()

 private:
  size_t place_of(TokenId token) const;       // in the list; its size: it is not there
  void set_logit(size_t place, float logit);  // -inf and NaN take it from the list
  template <typename Keep>
  void keep_if(Keep keep);  // of the list, in its order
  void strike(std::span<const uint64_t> bits);

  std::span<float> logits_;
  std::vector<Candidate> list_;
  std::vector<double> weights_;
  size_t sorted_ = 0;
  bool dense_ = true;
  uint64_t seed_ = 0;
  int64_t position_ = 0;
};

// Index of the largest logit, the first one on ties, NaN ignored; -1 if every logit is NaN or -inf. One pass.
TokenId argmax(std::span<const float> logits);

}  // namespace millrace
