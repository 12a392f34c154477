// Chooses how many tokens of each draft a step verifies, to maximize tokens a second. A step of n streams produces n
// tokens plus the drafted tokens that are kept. Each drafted token makes the step longer. The drafted tokens of all
// streams are sorted by the probability that they are kept. The step runs the first ones, as many as maximize tokens a
// second.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace millrace {

// A stream's draft, and how many of its tokens are verified.
struct DraftOffer {
  int64_t tokens = 0;
  bool whole = false;  // true: a tree, which runs whole, without its probes, or not at all
  int64_t chosen = 0;  // number of tokens to verify, set by choose()
};

// Compares a step with drafted tokens to the same step without them.
struct DraftEstimate {
  int64_t tokens = 0;  // number of drafted tokens; 0: none is likely enough, or there is no room
  double yield = 1;    // expected tokens of the step, divided by those of the step without drafts
  double time = 1;     // duration of the step, divided by that of the step without drafts
  double gain() const { return yield / time; }
  bool pays() const { return tokens > 0 && gain() > kWorthwhile; }

 private:
  static constexpr double kWorthwhile = 1.05;  // a smaller gain is within the error of the estimates
};

class DraftLengths {
 public:
  void reserve(int64_t drafts, int64_t tokens) {
    offers_.reserve(static_cast<size_t>(drafts));
    parts_.reserve(static_cast<size_t>(tokens));
  }
  void clear() {
    offers_.clear();
    parts_.clear();
  }
  // Adds a chain. likely(place): probability that the drafted token at index `place` and all before it are kept.
  template <typename Likely>
  void add_chain(int64_t tokens, Likely likely) {
    for (int64_t i = 0; i < tokens; ++i) parts_.push_back({likely(i), 1, i, offers_.size()});
    offers_.push_back({tokens, false, 0});
  }
  // Adds a tree that runs whole or not at all. `kept`: expected number of kept tokens.
  void add_tree(int64_t tokens, double kept) {
    parts_.push_back({kept, tokens, 0, offers_.size()});
    offers_.push_back({tokens, true, 0});
  }
  // Adds a tree of `candidates` tokens, followed by `probes` tokens that run for later drafts. If the probes do not
  // pay, the candidates run without them; probes never run without candidates. `kept`: expected number of kept tokens
  // if the candidates run alone. `with_probes`: the same number if the probes run, too.
  void add_probed_tree(int64_t candidates, double kept, int64_t probes, double with_probes) {
    const double more = with_probes - kept;
    if (more * static_cast<double>(candidates) >= kept * static_cast<double>(probes))
      return add_tree(candidates + probes, with_probes);
    parts_.push_back({kept, candidates, 0, offers_.size()});
    parts_.push_back({more, probes, candidates, offers_.size()});
    offers_.push_back({candidates + probes, true, 0});
  }
  // Finds the best lengths, and sets `chosen` of the offers to them if they pay. Returns the estimate for the best
  // lengths with at least one drafted token. `streams`: number of streams that the step samples for. `most`: maximum
  // number of drafted tokens in the step. seconds(tokens, longest): duration of the step with `tokens` drafted tokens,
  // whose longest draft has `longest` tokens.
  template <typename Seconds>
  DraftEstimate choose(int64_t streams, int64_t most, Seconds seconds) {
    std::ranges::sort(parts_, [](const Part& a, const Part& b) {
      const double x = a.kept / static_cast<double>(a.tokens), y = b.kept / static_cast<double>(b.tokens);
      return x != y ? x > y : a.place != b.place ? a.place < b.place : a.offer < b.offer;
    });
    const auto made = static_cast<double>(streams);
    const double plain = seconds(int64_t{0}, int64_t{0});
    DraftEstimate best;
    double kept = 0;
    int64_t tokens = 0, longest = 0;
    size_t count = 0;
    best_parts_ = 0;
    for (const Part& part : parts_) {
      if (part.kept < kUnlikely * static_cast<double>(part.tokens) || tokens + part.tokens > most) break;
      kept += part.kept;
      tokens += part.tokens;
      longest = std::max(longest, part.place + part.tokens);
      ++count;
      const DraftEstimate estimate{tokens, (made + kept) / made, seconds(tokens, longest) / plain};
      if (best.tokens == 0 || estimate.gain() > best.gain()) best = estimate, best_parts_ = count;
    }
    if (best.pays()) take();
    return best;
  }
  // Sets `chosen` of the offers to the best lengths although they do not pay. Called after choose().
  void take() {
    for (size_t i = 0; i < best_parts_; ++i) offers_[parts_[i].offer].chosen += parts_[i].tokens;
  }
  const std::vector<DraftOffer>& offers() const { return offers_; }

 private:
  struct Part {
    double kept = 0;  // expected number of kept tokens
    int64_t tokens = 0;
    int64_t place = 0;
    size_t offer = 0;
  };
  static constexpr double kUnlikely = 0.01;  // tokens with a smaller probability are not considered

  std::vector<DraftOffer> offers_;
  std::vector<Part> parts_;
  size_t best_parts_ = 0;  // number of first parts_ that the best lengths consist of
};

}  // namespace millrace
