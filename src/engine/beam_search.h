// BeamSearch: selects the beams of one request that survive a step, with the length penalty and early stopping of
// Hugging Face's BeamSearchScorer. It works on log-probabilities and beam numbers alone; BeamDriver (beam_driver.h) has
// the streams and blocks. Pure arithmetic in double, so the same candidates give the same beams.
//
//   live beams, best first       [b0 b1 b2]
//   best next tokens of each     all in one list by (sum of log-probabilities, beam, token)
//   head of that list            end token: a finished answer, if among the first `width`
//                                other token: a live beam of the next step
//
// score of an answer = sum of log-probabilities / (tokens ^ length_penalty), end token included.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "millrace/events.h"
#include "millrace/request.h"

namespace millrace {

struct BeamOptions {
  int64_t width = 1;
  double length_penalty = 1;
  EarlyStopping early_stopping = EarlyStopping::no;
  int64_t max_tokens = 0;           // maximum for an answer
  int64_t min_tokens = 0;           // end tokens are ignored before this number
  std::vector<TokenId> end_tokens;  // none: only max_tokens ends
};

struct BeamToken {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // if requested
};

struct BeamAnswer {
  std::vector<BeamToken> tokens;
  double score = 0;
  bool ended = false;  // by an end token
};

class BeamSearch {
 public:
  // `kept_top`: how many of each token's best alternatives its answer reports.
  explicit BeamSearch(BeamOptions options, int64_t kept_top = 0);

  // How many next tokens of each live beam advance() needs; all of them where the vocabulary has fewer.
  int64_t candidates_wanted() const;
  int64_t live() const { return static_cast<int64_t>(live_.size()); }

  struct Next {
    int64_t from = 0;  // live beam, before
    TokenId token = 0;
  };
  // candidates[i]: the best next tokens of live beam i, best first, ties by id. Returns the surviving beams, best
  // first. None: the search is over.
  std::vector<Next> advance(std::span<const std::vector<TokenLogprob>> candidates);

  // The best answers so far, best first, at most `count` (<= width). Live beams count as answers, unless the
  // search has ended by itself.
  std::vector<BeamAnswer> best(int64_t count) const;

 private:
  struct Step {  // one token of a beam; steps of all beams form a tree
    int64_t before = -1;
    BeamToken token;
  };
  struct Beam {
    double sum = 0;
    int64_t last = -1;  // step; -1: no token yet
  };
  struct Finished {
    double score = 0;
    int64_t last = -1;
    bool ended = false;
  };
  struct Choice {
    double sum = 0;
    int64_t beam = 0;
    TokenLogprob token;
  };
  std::vector<Choice> order(std::span<const std::vector<TokenLogprob>> candidates) const;
  bool is_end(TokenId token) const;
  double score(double sum, int64_t tokens) const;
  void add(std::vector<Finished>& finished, const Finished& one) const;
  bool over(double best_sum) const;
  int64_t write(int64_t before, const TokenLogprob& token, const std::vector<TokenLogprob>& candidates);

  BeamOptions options_;
  int64_t kept_top_;
  int64_t tokens_ = 0;  // tokens of every live beam
  std::vector<Step> steps_;
  std::vector<Beam> live_;
  std::vector<Finished> finished_;  // at most width
};

}  // namespace millrace
