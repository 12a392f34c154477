// TokenTrie: the bytes of a vocabulary's tokens as a trie in depth-first order, so that a walk reads memory forward and
// skips subtrees. Immutable, shared between threads.
//
//   index   0     1    2    3     4            node 1 has children 2 and 3; its end is 4
//   byte  (root)  a    b    c     b
//   depth   0     1    2    2     1
//
// Control tokens, unused tokens, tokens without bytes and tokens longer than kMaxTokenBytes are left out, so they are
// never part of constrained text.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/token.h"

namespace millrace {

class Tokenizer;

class TokenTrie {
 public:
  static constexpr size_t kMaxTokenBytes = 250;

  // `pieces`: the bytes of each token, by id; tokens without bytes are skipped.
  explicit TokenTrie(const std::vector<std::string>& pieces);

  struct Node {
    uint32_t end = 0;          // index after the last node below this one
    uint32_t first_token = 0;  // tokens that end at this node: [first_token, the next node's first_token)
    uint8_t byte = 0;
    uint8_t depth = 0;
  };
  std::span<const Node> nodes() const { return std::span(nodes_).first(nodes_.size() - 1); }
  std::span<const TokenId> tokens(uint32_t node) const {
    return std::span(tokens_).subspan(nodes_[node].first_token,
                                      nodes_[node + 1].first_token - nodes_[node].first_token);
  }
  bool has_children(uint32_t node) const { return nodes_[node].end > node + 1; }

  int32_t vocab_size() const { return static_cast<int32_t>(begin_.size()) - 1; }
  size_t words() const { return (static_cast<size_t>(vocab_size()) + 63) / 64; }  // size of a mask, one bit per token
  std::string_view piece(TokenId token) const {
    const auto t = static_cast<size_t>(token);
    return std::string_view(text_).substr(begin_[t], begin_[t + 1] - begin_[t]);
  }

 private:
  std::vector<Node> nodes_;  // nodes and a sentinel
  std::vector<TokenId> tokens_;
  std::vector<size_t> begin_;
  std::string text_;  // bytes of the tokens in the trie, by id
};

// Returns the bytes of each token, by id, as input of a TokenTrie.
std::vector<std::string> constrained_pieces(const Tokenizer& tokenizer);

}  // namespace millrace
