// How many tokens of each draft a step verifies: as many as make the step's tokens come fastest. A step of n streams
// that runs d drafted tokens makes n tokens and the drafted ones that are kept; it takes longer with each of them.
// Those most likely to be kept are added first, over all streams, and the best number of them is taken.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace millrace {

// The draft of one stream.
struct DraftOffer {
  int64_t tokens = 0;
  bool whole = false;  // a tree, which runs as a whole or not at all
  int64_t chosen = 0;  // set by choose()
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
  // A chain: `likely(place)` is the probability that a token and all before it are kept.
  template <typename Likely>
  void add_chain(int64_t tokens, Likely likely) {
    for (int64_t i = 0; i < tokens; ++i) parts_.push_back({likely(i), 1, i, offers_.size()});
    offers_.push_back({tokens, false, 0});
  }
  // A tree, of whose tokens `kept` are expected to be kept.
  void add_tree(int64_t tokens, double kept) {
    parts_.push_back({kept, tokens, 0, offers_.size()});
    offers_.push_back({tokens, true, 0});
  }
  // `streams`: all that the step samples for. `most`: drafted tokens that it has room for. `seconds(tokens, longest)`:
  // how long it takes with so many drafted tokens, the longest draft having `longest`.
  template <typename Seconds>
  void choose(int64_t streams, int64_t most, Seconds seconds) {
    std::ranges::sort(parts_, [](const Part& a, const Part& b) {
      const double x = a.kept / static_cast<double>(a.tokens), y = b.kept / static_cast<double>(b.tokens);
      return x != y ? x > y : a.place != b.place ? a.place < b.place : a.offer < b.offer;
    });
    const auto made = static_cast<double>(streams);
    double kept = 0, best = kWorthwhile * made / seconds(int64_t{0}, int64_t{0});
    int64_t tokens = 0, longest = 0;
    size_t taken = 0, count = 0;
    for (const Part& part : parts_) {
      if (part.kept < kUnlikely * static_cast<double>(part.tokens) || tokens + part.tokens > most) break;
      kept += part.kept;
      tokens += part.tokens;
      longest = std::max(longest, part.place + part.tokens);
      ++count;
      const double rate = (made + kept) / seconds(tokens, longest);
      if (rate > best) best = rate, taken = count;
    }
    for (size_t i = 0; i < taken; ++i) offers_[parts_[i].offer].chosen += parts_[i].tokens;
  }
  const std::vector<DraftOffer>& offers() const { return offers_; }

 private:
  struct Part {
    double kept = 0;  // expected
    int64_t tokens = 0;
    int64_t place = 0;
    size_t offer = 0;
  };
  static constexpr double kWorthwhile = 1.05;  // less is within the error of the estimates
  static constexpr double kUnlikely = 0.01;    // tokens less likely than that are not looked at

  std::vector<DraftOffer> offers_;
  std::vector<Part> parts_;
};

}  // namespace millrace
