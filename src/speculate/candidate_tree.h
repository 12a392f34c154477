// CandidateTree: a draft tree that is chosen from candidates. A candidate's score is the probability that it is
// reached. A child's score is at most its parent's, so the best candidates always form a tree.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

#include "flow/sequence.h"
#include "speculate/draft_model.h"

namespace millrace {

// Returns the assumed probability that the candidate of rank `rank` (from 0 on) is right at `place` of a branch. Used
// for trees of a fixed shape. The values are rough averages of figures in the papers on Medusa and EAGLE.
inline float assumed_share(int64_t place, int64_t rank) {
  constexpr std::array<float, 4> kByRank = {0.6f, 0.15f, 0.07f, 0.04f};
  return kByRank[static_cast<size_t>(std::min<int64_t>(rank, 3))] * std::pow(0.9f, static_cast<float>(place));
}

class CandidateTree {
 public:
  struct Node {
    TokenId token = 0;
    int64_t parent = -1;  // index; -1: the stream's last token
    int64_t place = 0;    // index in its branch
    float score = 1;
    int64_t ran = -1;  // for a drafter that runs nodes: index in the order in which they ran
  };

  void clear() { nodes_.clear(); }
  std::vector<Node>& nodes() { return nodes_; }

  // Adds up to `top` candidates behind `parent`: the drawn token, then the likeliest other tokens. `assumed`: true:
  // their probabilities are assumed_share(); false: the model's. Returns the number of candidates added.
  int64_t add(int64_t parent, const DraftPick& pick, int64_t top, bool assumed) {
    const int64_t place = parent < 0 ? 0 : nodes_[static_cast<size_t>(parent)].place + 1;
    const float reached = parent < 0 ? 1 : nodes_[static_cast<size_t>(parent)].score;
    int64_t rank = 0;
    // A token that is drawn is right where the model draws the same, so it counts as the likeliest.
    const auto take = [&](TokenId token, float share) {
      nodes_.push_back({token, parent, place, reached * (assumed ? assumed_share(place, rank) : share)});
      ++rank;
    };
    take(pick.drawn, pick.share[0]);
    for (size_t i = 0; i < pick.likely.size() && rank < top; ++i)
      if (pick.likely[i] != pick.drawn && pick.share[i] > 0) take(pick.likely[i], pick.share[i]);
    return rank;
  }

  // Sets the draft to the `most` best candidates, best first.
  void choose(int64_t most, bool tree, Draft& draft) {
    order_.resize(nodes_.size());
    for (size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<int64_t>(i);
    std::ranges::sort(order_, [&](int64_t a, int64_t b) {
      return std::tuple(-nodes_[static_cast<size_t>(a)].score, a) <
             std::tuple(-nodes_[static_cast<size_t>(b)].score, b);
    });
    order_.resize(std::min(order_.size(), static_cast<size_t>(most)));
    places_.assign(nodes_.size(), -1);
    draft.tokens.clear();
    draft.parents.clear();
    for (const int64_t index : order_) {
      const Node& node = nodes_[static_cast<size_t>(index)];
      places_[static_cast<size_t>(index)] = static_cast<int32_t>(draft.tokens.size());
      if (tree) draft.parents.push_back(node.parent < 0 ? -1 : places_[static_cast<size_t>(node.parent)]);
      draft.tokens.push_back(node.token);
    }
  }

 private:
  std::vector<Node> nodes_;  // parents first
  std::vector<int64_t> order_;
  std::vector<int32_t> places_;
};

}  // namespace millrace
