// SuffixAutomaton: an index of many texts. It finds where the last tokens of a text occurred before and which tokens
// followed there, in constant amortized time for each token (Blumer et al., 1985, "The Smallest Automaton Recognizing
// the Subwords of a Text"). Each text belongs to a scope. Each scope has a separate automaton in the same arrays, so a
// search finds no text of another scope. Several texts may grow at once. All memory is allocated by the constructor.
#pragma once

#include <cstdint>
#include <vector>

#include "flow/sequence.h"

namespace millrace {

class SuffixAutomaton {
 public:
  static constexpr int32_t kNone = -1;
  static constexpr int64_t kMaxScopes = 1024;

  // `tokens`: maximum number of tokens that may be added in all, at least 1.
  explicit SuffixAutomaton(int64_t tokens);

  static int64_t bytes(int64_t tokens);  // bytes that the constructor allocates
  int64_t room() const { return capacity_ - used_; }

  // Returns the state of a scope's empty text. Adds the scope if it is new; a scope takes the room of one token.
  // Returns kNone if there is no room, or if there are kMaxScopes.
  int32_t root(uint64_t scope);
  int32_t find_root(uint64_t scope) const;  // kNone: the scope was not added
  // Returns the root of a new scope, which has one text only.
  int32_t private_root();
  // Appends `token` to the text whose state is `last`. Returns the state of the longer text; kNone if there is no room.
  int32_t extend(int32_t last, TokenId token);

  // A matched text: the last `length` tokens of the state's longest text.
  struct Match {
    int32_t state = kNone;
    int64_t length = 0;
  };
  // Returns the longest suffix of the match's text that a token followed somewhere.
  Match continued(Match match) const;
  // Appends `token` to the match's text, and returns the longest suffix of the result that occurs in the scope. Adds
  // nothing to the index.
  Match advance(Match match, TokenId token) const;
  int64_t length(int32_t state) const { return states_[static_cast<size_t>(state)].length; }
  // The token that most often followed the state's text (the latest among equals), the state after it, and its share of
  // all following tokens. `state` must be a result of continued(), so that there is such a token.
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
    uint32_t latest;  // number of the extension that last followed this edge
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
  // Hash table with open addressing: edge + 1 by (from, token), for states with many edges; 0: free.
  std::vector<int32_t> slots_;
  std::vector<std::pair<uint64_t, int32_t>> roots_;
};

}  // namespace millrace
