// SuffixAutomaton: an index of many texts that answers where the last tokens of a text occurred before, and what
// followed them there, in constant amortized time for each token (Blumer et al., 1985, "The Smallest Automaton
// Recognizing the Subwords of a Text"). Texts belong to scopes, each with a separate automaton in the same arrays, so
// that no text is found from another scope. Several texts may grow at once. All memory is allocated by the constructor.
#pragma once

#include <cstdint>
#include <vector>

#include "flow/sequence.h"

namespace millrace {

class SuffixAutomaton {
 public:
  static constexpr int32_t kNone = -1;
  static constexpr int64_t kMaxScopes = 1024;

  // `tokens`: how many may be added in all, at least 1.
  explicit SuffixAutomaton(int64_t tokens);

  static int64_t bytes(int64_t tokens);  // bytes that the constructor allocates
  int64_t room() const { return capacity_ - used_; }

  // The state of the empty text of a scope; adds the scope, which counts as one token, if it is new. kNone: no room, or
  // kMaxScopes are there.
  int32_t root(uint64_t scope);
  int32_t find_root(uint64_t scope) const;  // kNone: not added
  // A root for a scope that no other text will have.
  int32_t private_root();
  // Adds `token` behind the text whose state is `last`, and returns the longer text's state. kNone: no room.
  int32_t extend(int32_t last, TokenId token);

  // A state, and how many tokens of its longest text are meant.
  struct Match {
    int32_t state = kNone;
    int64_t length = 0;
  };
  // The longest suffix of the match's text that something followed somewhere.
  Match continued(Match match) const;
  // The longest suffix of the match's text and `token` that occurs in the scope; adds nothing.
  Match advance(Match match, TokenId token) const;
  int64_t length(int32_t state) const { return states_[static_cast<size_t>(state)].length; }
  // The token that followed the state's text most often, the latest among equals, and the share of times that it did.
  // The state must be one of continued(), so that some token did.
  struct Continuation {
    TokenId token;
    int32_t next;
    double share;
  };
  Continuation likeliest(int32_t state) const;

  void clear();

 private:
  struct State {
    int32_t length;
    int32_t link;    // state of the longest suffix that also occurs elsewhere
    int32_t edges;   // its latest edge
    int32_t degree;  // number of its edges
  };
  struct Edge {
    int32_t from;
    TokenId token;
    int32_t to;
    uint32_t times;
    uint32_t latest;  // number of the extension that last took it
    int32_t more;     // the state's next edge
  };

  int32_t add_state(int32_t length, int32_t link);
  int32_t find_edge(int32_t from, TokenId token) const;
  void add_edge(int32_t from, TokenId token, int32_t to, uint32_t times);
  int32_t split(int32_t state, TokenId token, int32_t target);
  void count(int32_t state, TokenId token, int64_t suffixes);
  void prefetch_edge(int32_t from, TokenId token) const;
  size_t home_of(int32_t from, TokenId token) const;
  size_t slot_of(int32_t from, TokenId token) const;

  int64_t capacity_, used_ = 0;
  uint32_t extensions_ = 0;
  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<int32_t> slots_;  // edges of states with many, by (from, token), open addressing; edge + 1, or 0
  std::vector<std::pair<uint64_t, int32_t>> roots_;
};

}  // namespace millrace
